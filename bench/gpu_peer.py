#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun's unconstrained training on a CUDA device against PyTorch's, interleaved in rounds.

Either program is timed from outside, from one step's line to the next: reading a batch from the
same file, bringing it to the device, the step, and reading its loss. memrun computes the gradients'
norm beside. PyTorch runs with torch.compile, scaled_dot_product_attention and the fused AdamW, fp32
without TF32 as memrun computes, or bf16 by autocast over fp32 parameters. It stays up for all
rounds of a shape, so that it compiles once, and rests while memrun runs, which must find room
beside its parameters and moments. The first steps of each turn are dropped. A batch that does not
fit both is halved, and a line says so, unless --batch gives it.

Prints a row for each shape: medians, the median of the paired ratios (PyTorch / memrun: above 1
memrun is faster), and memrun's rates. Without PyTorch or a device it says so and exits with 77;
where no batch fits, with 3.
"""
import argparse
import array
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from compute_peer import arguments, step_flops

SKIPPED = 77
DOES_NOT_FIT = 3  # memrun's status, and the peer's
DROPPED = 2  # steps of each turn: kernels are loaded, clocks rise
NAMES = ("layers", "width", "heads", "vocab", "batch", "seq")
EXPECTED = "2.11"  # the PyTorch that figures are to be compared for

# Batches that fill the chip and leave both programs room in a device of 140 GiB.
SHAPES = {
    "gpt2-f32": dict(layers=12, width=768, heads=12, vocab=50257, batch=32, seq=1024, dtype="f32"),
    "gpt2-bf16": dict(layers=12, width=768, heads=12, vocab=50257, batch=32, seq=1024,
                      dtype="bf16"),
    "gpt2-xl-f32": dict(layers=48, width=1600, heads=25, vocab=50257, batch=4, seq=1024,
                        dtype="f32"),
    "gpt2-xl-bf16": dict(layers=48, width=1600, heads=25, vocab=50257, batch=8, seq=1024,
                         dtype="bf16"),
}


class NoRoom(Exception):
    """The device's memory does not hold the shape; the argument is whose."""


def fail(words, status=1):
    print("%s: %s" % (os.path.basename(sys.argv[0]), words), file=sys.stderr)
    sys.exit(status)


def ended(name, status):
    """What becomes of a program that ended early."""
    if status == DOES_NOT_FIT:
        raise NoRoom(name)
    fail("%s ended with status %d" % (name, status))


def intervals(times):
    """Seconds of each step that counts, from when its line came."""
    return [after - before for before, after in zip(times, times[1:])][DROPPED - 1:]


def write_tokens(path, shape, steps):
    """A file in llm.c's format with a batch for each step."""
    count = steps * shape["batch"] * shape["seq"] + 1
    draw = random.Random(1)
    limit = min(shape["vocab"], 1 << 16)
    with open(path, "wb") as file:
        array.array("I", [20240520, 1, count] + 253 * [0]).tofile(file)
        array.array("H", draw.choices(range(limit), k=count)).tofile(file)


def run_memrun(memrun, shape, steps, data):
    """Seconds of each step that counts."""
    line = [memrun, "--device", "cuda", "--offload", "none", "--recompute", "none", "--json",
            "train", "--clip", "0", "--positions", str(shape["seq"]), "--steps", str(steps),
            "--data", data, "--dtype", shape["dtype"], *arguments(shape, NAMES)]
    times = []
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        for text in process.stdout:
            now = time.monotonic()
            if json.loads(text)["event"] == "step":
                times.append(now)
    if process.returncode != 0:
        ended("memrun", process.returncode)
    return intervals(times)


class Peer:
    """The other program: a line on its standard input asks for a turn of steps."""

    def __init__(self, options, shape, data):
        line = [options.python, options.peer, "--turns", "--device", "cuda", "--attention",
                "fused", "--dtype", shape["dtype"], "--steps", str(options.steps), "--data", data,
                "--positions", str(shape["seq"]), *arguments(shape, NAMES)]
        if not options.eager:
            line.append("--compile")
        self.steps = options.steps
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def turn(self):
        """Seconds of each step that counts; waits until the memory of steps is given back."""
        times = []
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its status says why
        for text in self.process.stdout:
            if text == "\n":
                break
            times.append(time.monotonic())
        if len(times) != self.steps:
            ended("PyTorch", self.process.wait())
        return intervals(times)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait()


def measure(options, shape, data):
    """Seconds of a step of either program, by rounds; which begins changes with each."""
    ours, theirs = [], []
    run_memrun(options.memrun, shape, options.steps, data)  # learns how fast the machine is
    peer = Peer(options, shape, data)
    try:
        peer.turn()  # compiles
        for i in range(options.rounds):
            turns = [
                lambda: ours.append(statistics.median(
                    run_memrun(options.memrun, shape, options.steps, data))),
                lambda: theirs.append(statistics.median(peer.turn())),
            ]
            for turn in turns if i % 2 == 0 else reversed(turns):
                turn()
    finally:
        peer.close()
    return ours, theirs


def measure_fitting(options, name):
    """The row of a shape with the largest of its batch, half of it and so on that fits."""
    given = {key: getattr(options, key) for key in NAMES if getattr(options, key) is not None}
    shape = {**SHAPES[name], **given}
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "tokens.bin")
        while True:
            write_tokens(data, shape, options.steps)
            try:
                return row(name, shape, *measure(options, shape, data))
            except NoRoom as who:
                batch = shape["batch"]
                if "batch" in given or batch == 1:
                    fail("%s with a batch of %d does not fit the device: %s ran out of its memory"
                         "%s" % (name, batch, who, "; give a smaller --batch" if batch > 1 else ""),
                         DOES_NOT_FIT)
                shape["batch"] = batch // 2
                print("# %s: a batch of %d, for one of %d does not fit: %s ran out of memory" % (
                    name, batch // 2, batch, who), flush=True)


def row(name, shape, ours, theirs):
    seconds = statistics.median(ours)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs))
    return "%-14s %5d %11.2f %11.2f %7.3f %12.0f %9.1f" % (
        name, shape["batch"], 1e3 * seconds, 1e3 * statistics.median(theirs), ratio,
        shape["batch"] * shape["seq"] / seconds, step_flops(shape) / seconds * 1e-12)


def warning(version):
    """What is printed where the figures are for another PyTorch; None where they are not."""
    if re.search(r"\b%s\b" % re.escape(EXPECTED), version):
        return None
    return "# warning: these figures are not for PyTorch %s.x" % EXPECTED


def find_device(memrun):
    """What memrun says of the device; ends where there is none."""
    info = subprocess.run([memrun, "info", "--json"], stdout=subprocess.PIPE, text=True,
                          check=False)
    if info.returncode != 0:
        fail("memrun info ended with status %d" % info.returncode)
    device = next(x for x in json.loads(info.stdout)["devices"] if x["name"] == "cuda")
    if not device["available"]:
        fail("no device: " + device["reason"], SKIPPED)
    return device


def device_line(device):
    version = device["driver_version"]
    return "# device: %s, %.1f GiB, driver for CUDA %d.%d" % (
        device["model"], device["memory_bytes"] / (1 << 30), version // 1000, version % 1000 // 10)


def print_head(options):
    """What the rows are of; ends where there is nothing to measure."""
    device = find_device(options.memrun)
    asked = subprocess.run([options.python, options.peer, "--version", "--device", "cuda"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        why = asked.stderr.strip().splitlines()[-1:] or ["status %d" % asked.returncode]
        fail("%s has no PyTorch that finds the device (%s); --python names one that does" % (
            options.python, why[0]), SKIPPED)
    version = asked.stdout.strip()
    print("# python3 " + " ".join(sys.argv))
    print(device_line(device))
    print("# " + version + (", not compiled" if options.eager else ""))
    if warning(version):
        print(warning(version))
    print("%-14s %5s %11s %11s %7s %12s %9s" % ("shape", "batch", "memrun ms", "pytorch ms",
                                                "ratio", "tokens/s", "TFLOP/s"), flush=True)


def positive(least):
    def read(text):
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError("must be at least %d" % least)
        return number
    return read


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--memrun", default="build/gpu/tools/memrun")
    parser.add_argument("--python", default="python3", help="that has PyTorch")
    parser.add_argument("--peer", default=os.path.join(here, "peers", "gpt2_torch.py"))
    parser.add_argument("--eager", action="store_true", help="PyTorch without torch.compile")
    parser.add_argument("--rounds", type=positive(1), default=5)
    parser.add_argument("--steps", type=positive(DROPPED + 1), default=8, help="of a turn")
    parser.add_argument("--shape", action="append", choices=SHAPES)
    for name in NAMES:
        parser.add_argument("--" + name, type=positive(1), help="instead of the shape's")
    options = parser.parse_args()
    print_head(options)
    for name in options.shape or SHAPES:
        print(measure_fitting(options, name), flush=True)


if __name__ == "__main__":
    main()
