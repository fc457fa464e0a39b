#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun's unconstrained step on a CUDA device against PyTorch's, interleaved in rounds.

PyTorch runs with torch.compile, scaled_dot_product_attention and the fused AdamW, fp32 without TF32
as memrun computes, or bf16 by autocast over fp32 parameters. It stays up for all rounds of a shape,
so that it compiles once, and rests while memrun runs. The first steps of each turn are dropped.
Prints a row for each shape: medians, the median of the paired ratios (PyTorch / memrun: above 1
memrun is faster), and memrun's rates. Without PyTorch it says so and exits with 77.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from compute_peer import arguments, step_flops

SKIPPED = 77
DROPPED = 2  # steps of each turn: kernels are loaded, clocks rise
NAMES = ("layers", "width", "heads", "vocab", "batch", "seq")

# Batches that fill the chip and leave both programs room in the memory of one device.
SHAPES = {
    "gpt2-f32": dict(layers=12, width=768, heads=12, vocab=50257, batch=32, seq=1024, dtype="f32"),
    "gpt2-bf16": dict(layers=12, width=768, heads=12, vocab=50257, batch=32, seq=1024,
                      dtype="bf16"),
    "gpt2-xl-f32": dict(layers=48, width=1600, heads=25, vocab=50257, batch=4, seq=1024,
                        dtype="f32"),
    "gpt2-xl-bf16": dict(layers=48, width=1600, heads=25, vocab=50257, batch=8, seq=1024,
                         dtype="bf16"),
}


def run_memrun(memrun, shape, steps):
    """Seconds of each step that counts."""
    line = [memrun, "--device", "cuda", "--offload", "none", "--json", "train", "--clip", "0",
            "--positions", str(shape["seq"]), "--steps", str(steps), *arguments(shape, NAMES)]
    if shape["dtype"] != "f32":
        line += ["--dtype", shape["dtype"]]
    out = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
    events = [json.loads(x) for x in out.splitlines()]
    return [e["seconds"] for e in events if e["event"] == "step"][DROPPED:]


class Peer:
    """The other program: a line on its standard input asks for a turn of steps."""

    def __init__(self, command, shape, steps):
        line = [*command, "--turns", "--device", "cuda", "--compile", "--attention", "fused",
                "--dtype", shape["dtype"], "--steps", str(steps),
                "--positions", str(shape["seq"]), *arguments(shape, NAMES)]
        self.steps = steps
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def turn(self):
        """Seconds of each step that counts."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        lines = [self.process.stdout.readline() for _ in range(self.steps)]
        if not lines[-1]:
            sys.exit("the peer ended with status %d" % self.process.wait())
        return [float(line.split()[0]) for line in lines][DROPPED:]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(options, shape):
    """Seconds of a step of either program, by rounds; which begins changes with each."""
    ours, theirs = [], []
    peer = Peer([options.python, options.peer], shape, options.steps)
    peer.turn()  # compiles
    for i in range(options.rounds):
        turns = [
            lambda: ours.append(
                statistics.median(run_memrun(options.memrun, shape, options.steps))),
            lambda: theirs.append(statistics.median(peer.turn())),
        ]
        for turn in turns if i % 2 == 0 else reversed(turns):
            turn()
    peer.close()
    return ours, theirs


def row(name, shape, ours, theirs):
    seconds = statistics.median(ours)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs))
    return "%-14s %11.2f %11.2f %7.3f %12.0f %9.1f" % (
        name, 1e3 * seconds, 1e3 * statistics.median(theirs), ratio,
        shape["batch"] * shape["seq"] / seconds, step_flops(shape) / seconds * 1e-12)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--memrun", default="build/gpu/tools/memrun")
    parser.add_argument("--python", default="python3", help="that has PyTorch")
    parser.add_argument("--peer", default=os.path.join(here, "peers", "gpt2_torch.py"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--shape", action="append", choices=SHAPES)
    for name in NAMES:
        parser.add_argument("--" + name, type=int, help="instead of the shape's")
    options = parser.parse_args()
    asked = subprocess.run([options.python, options.peer, "--version"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False)
    if asked.returncode != 0:
        print("gpu_peer.py: %s finds no PyTorch; --python names one that does" % options.python,
              file=sys.stderr)
        sys.exit(SKIPPED)
    print("# python3 " + " ".join(sys.argv))
    print("# " + asked.stdout.strip())
    print("%-14s %11s %11s %7s %12s %9s" % ("shape", "memrun ms", "pytorch ms", "ratio",
                                            "tokens/s", "TFLOP/s"))
    for name in options.shape or SHAPES:
        given = {key: getattr(options, key) for key in NAMES if getattr(options, key) is not None}
        shape = {**SHAPES[name], **given}
        print(row(name, shape, *measure(options, shape)), flush=True)


if __name__ == "__main__":
    main()
