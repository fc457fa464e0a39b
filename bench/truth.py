#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forecasts against measured medians over models, budgets and modes; writes results/truth.txt.

  bench/truth.py [MEMRUN [FOLDER]]

MEMRUN is the command (build/release/tools/memrun), FOLDER where NVMe files and the profile go
(build/bench-truth; removed at the end). Each model runs without budgets first, so that the profile
knows its ops, as it does on a machine that has been used. Then each job: what the first plan
forecast, what the last plan did, the median of the steps under it, how far the forecasts are off,
how often the plan was replaced, whether each tier's peak was the plan's to the byte, and how much
of the processors others had. Wants a machine that does nothing else; takes about seven minutes.
"""

import datetime
import json
import pathlib
import platform
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {
    "4x256": (["--layers", "4", "--width", "256", "--heads", "4", "--batch", "4", "--seq", "256",
               "--vocab", "1024"], 24),
    "12x512": (["--layers", "12", "--width", "512", "--heads", "8", "--batch", "2", "--seq", "256",
                "--vocab", "2048"], 12),
    "gpt2": (["--preset", "gpt2", "--batch", "1", "--seq", "256"], 9),
}
# Part of the footprint, tier, recompute.
JOBS = [(1.0, "none", "none"), (0.5, "host", "none"), (0.25, "host", "none"),
        (0.25, "host", "auto"), (0.125, "host", "auto"), (0.5, "nvme", "none"),
        (0.25, "nvme", "auto"), (0.125, "nvme", "auto")]
TEACHING_STEPS = "6"
GOAL = 0.05
ROW = "%-7s %6s %-5s %-9s %9s %9s %9s %8s %8s %8s %6s %7s"


def events(command, *arguments):
    done = subprocess.run([*command, "--json", *map(str, arguments)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise SystemExit("memrun %s: %s" % (" ".join(map(str, arguments)), done.stderr.strip()))
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(memrun, folder, model, job):
    """The row of a job, and how far its last and its first forecast are off."""
    part, tier, recompute = job
    options, steps = MODELS[model]
    options = [*options, "--profile", folder / "profile.json"]
    footprint = events([memrun, "plan"], *options, "--offload", "none", "--recompute",
                       "none")[0]["footprint_bytes"]
    more = ["--offload", tier, "--recompute", recompute, "--steps", steps]
    more += ["--device-mem", int(part * footprint)] if part < 1 else []
    more += ["--host-mem", footprint] if tier == "host" else []
    more += ["--host-mem", "0", "--nvme", folder] if tier == "nvme" else []
    done = events([memrun, "train"], *options, *more)[-1]
    found = done["forecast"]
    median = found["median_seconds"]
    first = found["first_predicted_seconds"] / median - 1
    equal = all(done["plan"]["need_bytes"][each] == done["peak_bytes"][each]
                for each in ("device", "host", "nvme")) if found["replans"] == 0 else None
    row = ROW % (model, "%g %%" % (100 * part), tier, recompute,
                 *("%.1f" % (1e3 * seconds) for seconds in
                   (found["first_predicted_seconds"], found["predicted_seconds"], median)),
                 "%+.1f %%" % (100 * first), "%+.1f %%" % (100 * found["error"]),
                 found["replans"], {True: "equal", False: "differ", None: "-"}[equal],
                 "%.0f %%" % (100 * found["others_share"]))
    return row, first, found["error"]


def main():
    memrun = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/tools/memrun"
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build/bench-truth")
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["bench/truth.py, %s, %s" % (datetime.date.today(), platform.platform()), "",
             ROW % ("model", "memory", "tier", "recompute", "first ms", "last ms", "median",
                    "first", "last", "replans", "peaks", "others")]
    print("\n".join(lines), flush=True)
    errors = []
    try:
        for options, _ in MODELS.values():
            for _ in range(2):
                events([memrun, "train"], *options, "--profile", folder / "profile.json",
                       "--offload", "none", "--recompute", "none", "--steps", TEACHING_STEPS)
        for model in MODELS:
            for job in JOBS:
                row, *found = measure(memrun, folder, model, job)
                errors.append(found)
                lines.append(row)
                print(row, flush=True)
    finally:
        shutil.rmtree(folder)
    for which, name in enumerate(("first", "last")):
        good = sum(abs(found[which]) <= GOAL for found in errors)
        lines.append("%s forecast within %.0f %%: %d of %d jobs" % (name, 100 * GOAL, good,
                                                                    len(errors)))
        print(lines[-1])
    (ROOT / "bench/results/truth.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
