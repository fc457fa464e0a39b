#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forecasts against measured medians over models, budgets and modes; writes results/truth.txt.

  bench/truth.py [--only PATTERN] [--repeats N] [MEMRUN [FOLDER]]

MEMRUN is the command (build/release/tools/memrun), FOLDER where NVMe files and the profile go
(build/bench-truth; removed at the end). PATTERN chooses jobs by name, as a shell does files': a
job is MODEL/MEMORY/TIER/RECOMPUTE (--only '4x256/*/nvme/*'). Then nothing is written. A job that
does not fit its part of the memory gets the smallest budget that does.

Each model runs without budgets first, so that the profile knows its ops, as it does on a machine
that has been used. Then each job: what the first plan forecast, the last forecast that four steps
followed, their median, how far the forecasts are off, how far the step is from a replay, a
simulation by what its own ops and links took (what is left is the simulation's fault, the rest the
rates'), how often the plan was replaced, whether each tier's peak was the plan's to the byte, how
much of the processors others had, and by how much the second half of the steps was slower than the
first. Wants a machine that does nothing else; takes about fifteen minutes, and as long again where
all jobs are run again.

A job was quiet where others had at most 2 % of the processors and the halves of its steps differ by
at most 3 %: one plan in one process then took the same time throughout. That does not depend on any
forecast. Jobs that were not are run again after all others, at most N times (1); the last of a
job's runs is what counts.
"""

import argparse
import datetime
import fnmatch
import json
import pathlib
import platform
import re
import shutil
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {
    "4x256": (["--layers", "4", "--width", "256", "--heads", "4", "--batch", "4", "--seq", "256",
               "--vocab", "1024"], 100),
    "12x512": (["--layers", "12", "--width", "512", "--heads", "8", "--batch", "2", "--seq", "256",
                "--vocab", "2048"], 36),
    "gpt2": (["--preset", "gpt2", "--batch", "1", "--seq", "256"], 28),
}
# Part of the footprint, tier, recompute.
JOBS = [(1.0, "none", "none"), (0.5, "host", "none"), (0.25, "host", "none"),
        (0.25, "host", "auto"), (0.125, "host", "auto"), (0.5, "nvme", "none"),
        (0.25, "nvme", "auto"), (0.125, "nvme", "auto")]
TEACHING_STEPS = "12"
GOAL = 0.05
MOST_OTHERS = 0.02
MOST_DRIFT = 0.03
DOES_NOT_FIT = 3
REPLAY = re.compile(r"replay: a step took ([\d.]+) s, ([\d.]+) s simulated")
ROW = "%-7s %6s %-5s %-9s %9s %9s %9s %8s %8s %8s %8s %6s %7s %7s %6s"


def output(command, *arguments):
    done = subprocess.run([*command, "--json", *map(str, arguments)], capture_output=True,
                          text=True, check=False)
    refused = command[1] == "plan" and done.returncode == DOES_NOT_FIT
    if done.returncode != 0 and not refused:
        raise SystemExit("memrun %s: %s" % (" ".join(map(str, arguments)), done.stderr.strip()))
    return done


def events(command, *arguments):
    return [json.loads(line) for line in output(command, *arguments).stdout.splitlines()]


def drift_of(seconds):
    """How much slower the second half of the steps was; the first step warms up."""
    half = (len(seconds) + 1) // 2
    return statistics.median(seconds[half:]) / statistics.median(seconds[1:half]) - 1


def measure(memrun, folder, model, job):
    """The row of a job, whether it was quiet, and how far its first and last forecasts are off."""
    part, tier, recompute = job
    options, steps = MODELS[model]
    options = [*options, "--profile", folder / "profile.json"]
    footprint = events([memrun, "plan"], *options, "--offload", "none", "--recompute",
                       "none")[0]["footprint_bytes"]
    more = ["--offload", tier, "--recompute", recompute]
    more += ["--host-mem", footprint] if tier == "host" else []
    more += ["--host-mem", "0", "--nvme", folder] if tier == "nvme" else []
    if part < 1:
        device = int(part * footprint)
        plan = events([memrun, "plan"], *options, *more, "--device-mem", device)[0]
        device = device if plan["fits"] else plan["smallest_device_bytes"]
        more += ["--device-mem", device]
        part = device / footprint
    more += ["--steps", steps]
    ended = output([memrun, "train"], *options, *more, "-vv")
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    done = told[-1]
    drift = drift_of([each["seconds"] for each in told if each["event"] == "step"])
    step, replayed = map(float, REPLAY.search(ended.stderr).groups())
    found = done["forecast"]
    median = found["median_seconds"]
    first = found["first_predicted_seconds"] / median - 1
    quiet = found["others_share"] <= MOST_OTHERS and abs(drift) <= MOST_DRIFT
    equal = all(done["plan"]["need_bytes"][each] == done["peak_bytes"][each]
                for each in ("device", "host", "nvme")) if found["replans"] == 0 else None
    row = ROW % (model, "%.3g %%" % (100 * part), tier, recompute,
                 *("%.1f" % (1e3 * seconds) for seconds in
                   (found["first_predicted_seconds"], found["predicted_seconds"], median)),
                 "%+.1f %%" % (100 * first), "%+.1f %%" % (100 * found["error"]),
                 "%+.1f %%" % (100 * (replayed / step - 1)),
                 found["replans"], {True: "equal", False: "differ", None: "-"}[equal],
                 "%.0f %%" % (100 * found["others_share"]), "%+.1f %%" % (100 * drift),
                 "quiet" if quiet else "-")
    return row, quiet, (first, found["error"])


def name_of(model, job):
    part, tier, recompute = job
    return "%s/%g/%s/%s" % (model, 100 * part, tier, recompute)


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="PATTERN", default="*")
    parser.add_argument("--repeats", metavar="N", type=int, default=1)
    parser.add_argument("memrun", nargs="?", type=pathlib.Path,
                        default=ROOT / "build/release/tools/memrun")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "build/bench-truth")
    return parser.parse_args()


def teach(memrun, folder, model):
    """Two runs without budgets; the second corrects the first."""
    for _ in range(2):
        events([memrun, "train"], *MODELS[model][0], "--profile", folder / "profile.json",
               "--offload", "none", "--recompute", "none", "--steps", TEACHING_STEPS)


def main():
    asked = options()
    asked.folder.mkdir(parents=True, exist_ok=True)
    chosen = [(model, job) for model in MODELS for job in JOBS
              if fnmatch.fnmatch(name_of(model, job), asked.only)]
    head = ["bench/truth.py --repeats %d, %s, %s"
            % (asked.repeats, datetime.date.today(), platform.platform()), "",
            ROW % ("model", "memory", "tier", "recompute", "first ms", "last ms", "median",
                   "first", "last", "replay", "replans", "peaks", "others", "drift", "")]
    print("\n".join(head), flush=True)
    found = {}
    try:
        for model in dict.fromkeys(model for model, _ in chosen):
            teach(asked.memrun, asked.folder, model)
        for _ in range(1 + asked.repeats):
            for model, job in chosen:
                name = name_of(model, job)
                if name not in found or not found[name][1]:
                    found[name] = measure(asked.memrun, asked.folder, model, job)
                    print(found[name][0], flush=True)
    finally:
        shutil.rmtree(asked.folder)
    lines = head + [row for row, _, _ in found.values()]
    jobs = [(quiet, errors) for _, quiet, errors in found.values()]
    for which, name in enumerate(("first", "last")):
        good = [quiet for quiet, errors in jobs if abs(errors[which]) <= GOAL]
        lines.append("%s forecast within %.0f %%: %d of %d quiet jobs, %d of %d jobs"
                     % (name, 100 * GOAL, sum(good), sum(quiet for quiet, _ in jobs), len(good),
                        len(jobs)))
        print(lines[-1])
    if asked.only == "*":
        (ROOT / "bench/results/truth.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
