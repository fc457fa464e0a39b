#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Abstract planning problems: time over the proven bound, and seconds to plan; prints a table.

  bench/problem.py [--only PATTERN] [--repeats N] [MEMRUN]

MEMRUN is the command (build/release/tools/memrun). The two problems of tests/data/plan are planned
as they are, and training steps with layers like theirs: more layers, tensors in parts, several
steps, weights and gradients that come and go, slow drives, little memory. Of a step the device has
a part of what it needs without moves, the host a part of all tensors. Seconds are the median of N
(5) whole commands, which read the problem, plan it, and write and print what they found; problems
take turns. PATTERN chooses rows by name, as a shell does files'.
"""

import argparse
import fnmatch
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "plan"
FOREVER = 1e9  # to make again what cannot be
WEIGHT_BYTES = 3.5e8  # of half a layer
SLOW_DRIVE = (25e9, 25e9, 6e8, 1.2e9)


class Step(NamedTuple):
    """A training step: layers like those of a given problem, forward, then backward."""
    name: str
    like: str
    layers: int
    device: float
    host: float
    parts: int = 1
    steps: int = 1
    weights: bool = False
    again: bool = True
    rates: tuple = ()


STEPS = [
    Step("nearly fits", "s32", 32, 0.95, 1),
    Step("a quarter", "s32", 32, 0.25, 1),
    Step("80 layers", "i16a", 80, 0.1, 1),
    Step("126 layers", "s32", 126, 0.1, 1),
    Step("126, weights", "s32", 126, 0.25, 0.3, weights=True),
    Step("drive binds", "s32", 32, 0.5, 0.02, again=False),
    Step("slow drive", "s32", 80, 0.25, 0.05, rates=SLOW_DRIVE),
    Step("126 x 16 parts", "s32", 126, 0.25, 0.5, parts=16),
    Step("126 x 16 steps", "s32", 126, 0.25, 0.5, steps=16),
    Step("2000 layers", "s32", 2000, 0.25, 0.5),
    Step("the same, i16a", "i16a", 2000, 0.1, 0.5),
    Step("1294, weights", "s32", 1294, 0.25, 0.3, weights=True),
    Step("126 x 25 parts", "s32", 126, 0.25, 0.5, parts=25),
    Step("126 x 25 steps", "s32", 126, 0.25, 0.5, steps=25),
    Step("3182 layers", "s32", 3182, 0.25, 0.5),
    Step("the same, i16a", "i16a", 3182, 0.1, 0.5),
    Step("3182, slow drive", "s32", 3182, 0.1, 0.02, rates=SLOW_DRIVE),
]


def numbers(name):
    """A given problem: its first line, compute times, working sets and tensors."""
    lines = (DATA / f"{name}.txt").read_text().splitlines()
    rows = [[float(word) for word in line.split()] for line in lines]
    return rows[0], rows[1], rows[2], rows[3:]


def tensors_of(step, given):
    """Size, p, g, recompute, start, end and clean of each tensor."""
    halves = [[t for t in given if t[1] == half] for half in (0, 1)]
    length = 4 * step.layers
    for first in range(0, length * step.steps, length):
        for p in range(2 * step.layers):
            made, used = first + p, first + length - 1 - p
            kept = [(t[0], made, used, t[3], 0, 0, 0) for t in halves[p % 2]]
            if step.weights:
                kept += [(WEIGHT_BYTES, -1, made, FOREVER, 1, 0, 0),
                         (WEIGHT_BYTES, made, used, FOREVER, 0, 0, 1),
                         (WEIGHT_BYTES, used, -1, FOREVER, 0, 1, 0)]
            for size, begin, end, seconds, *flags in kept:
                again = step.again and seconds < FOREVER
                part = (size // step.parts, begin, end,
                        seconds / step.parts if again else FOREVER, *flags)
                yield from [part] * step.parts


def write_step(step, path):
    head, compute, worksets, given = numbers(step.like)
    half = 2 * step.layers
    one = [k % 2 if k < half else len(compute) - 2 + k % 2 for k in range(2 * half)]
    segments = one * step.steps
    tensors = list(tensors_of(step, given))
    held = [0.0] * (len(segments) + 1)
    for size, begin, end, _, start, leaves, _ in tensors:
        if not start and not leaves:
            held[begin + 1] += size
            held[end] -= size
    most = lying = 0.0
    for k, source in enumerate(segments):
        lying += held[k]
        most = max(most, lying + worksets[source])
    budgets = [step.device * most, step.host * sum(t[0] for t in tensors)]
    with path.open("w") as file:
        print(len(segments), len(tensors), *map(round, budgets), *(step.rates or head[4:]),
              file=file)
        print(*(compute[k] for k in segments), file=file)
        print(*(worksets[k] for k in segments), file=file)
        for row in tensors:
            print(*row, file=file)


def plan(memrun, problem, schedule):
    begin = time.monotonic()
    done = subprocess.run([memrun, "plan", "--json", "--problem", problem, "--schedule", schedule],
                          capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{problem}: {done.stderr.strip()}")
    return json.loads(done.stdout), seconds


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("memrun", nargs="?", default=ROOT / "build/release/tools/memrun")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [(name, DATA / f"{name}.txt") for name in ("i16a", "s32")]
        for i, step in enumerate(STEPS):
            rows.append((step.name, pathlib.Path(folder) / f"{i}.txt"))
            if fnmatch.fnmatch(step.name, args.only):
                write_step(step, rows[-1][1])
        rows = [row for row in rows if fnmatch.fnmatch(row[0], args.only)]
        seconds = [[] for _ in rows]
        answers = [None] * len(rows)
        for _ in range(args.repeats):
            for i, (_, path) in enumerate(rows):
                answers[i], taken = plan(args.memrun, path, pathlib.Path(folder) / "schedule.txt")
                seconds[i].append(taken)
    print(f"# processor: {processor()}; seconds: the median of {args.repeats} runs")
    print("problem          segments tensors      time s     bound s      gap  plan s  bound by")
    for (name, _), answer, taken in zip(rows, answers, seconds):
        gap = 100 * (answer["seconds"] / answer["bound_seconds"] - 1)
        print(f"{name:<16} {answer['segments']:8} {answer['tensors']:7} {answer['seconds']:11.6f} "
              f"{answer['bound_seconds']:11.6f} {gap:7.3f}% {statistics.median(taken):7.3f}  "
              f"{answer['bound_by']}")


if __name__ == "__main__":
    main()
