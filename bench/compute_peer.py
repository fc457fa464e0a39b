#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compute figure: memrun's unconstrained step against PyTorch's, interleaved in rounds.

Each round runs both programs for a few steps, memrun first in even rounds; the first two steps of
a run are dropped. Directly before and after memrun's steps the machine's large product is timed
by --gemm. Prints a row for each shape: the medians, the median of the paired ratios (PyTorch /
memrun: above 1 memrun is faster), the rate that memrun's step reaches in floating-point
operations, the rate of the large product, and the median of their paired ratios.

PyTorch runs with what makes it fastest on the machine: --torch-env NAME=VALUE (repeatable).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

SHAPES = {
    "gpt2 4x256": dict(layers=12, width=768, heads=12, vocab=50257, batch=4, seq=256),
    "gpt2 4x64": dict(layers=12, width=768, heads=12, vocab=50257, batch=4, seq=64),
    "6x384 4x256": dict(layers=6, width=384, heads=6, vocab=50257, batch=4, seq=256),
}


def step_flops(s):
    """Multiply-adds, counted twice: all matrix products, and attention's lower triangle."""
    rows = s["batch"] * s["seq"]
    c = s["width"]
    matrix = s["layers"] * 12 * c * c + s["vocab"] * c
    attention = (
        s["layers"] * 2 * rows * s["seq"] * c
    )  # forward: two products of rows x seq x c, half of them masked
    return 6 * rows * matrix + 3.5 * attention


def arguments(shape, names):
    return [x for n in names for x in ("--" + n, str(shape[n]))]


def run_memrun(command, shape, steps, threads):
    line = command + [
        "--offload",
        "none",
        "--threads",
        str(threads),
        "--json",
        "train",
        "--clip",
        "0",
        "--positions",
        "1024",
        "--steps",
        str(steps),
    ]
    line += arguments(shape, ("layers", "width", "heads", "vocab", "batch", "seq"))
    out = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
    events = [json.loads(x) for x in out.splitlines()]
    return [e["seconds"] for e in events if e.get("event") == "step"][2:]


def gemm_rate(command, threads):
    """GFLOP/s of the machine's large product."""
    line = [command, "9", str(threads), "auto", "wall", "product"]
    return float(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)


def run_torch(python, shape, steps, threads, env):
    here = os.path.dirname(os.path.abspath(__file__))
    line = [
        python,
        os.path.join(here, "peers", "gpt2_torch.py"),
        "--steps",
        str(steps),
        "--threads",
        str(threads),
    ]
    line += arguments(shape, ("layers", "width", "heads", "vocab", "batch", "seq"))
    out = subprocess.run(
        line, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    ).stdout
    return [float(x.split()[0]) for x in out.splitlines()][2:]


def run_round(a, shape, env, memrun_first):
    """Seconds of memrun's and PyTorch's steps, and the large product's rate around memrun's."""

    def ours():
        before = gemm_rate(a.gemm, a.threads)
        seconds = statistics.median(run_memrun([a.memrun], shape, a.steps, a.threads))
        return seconds, (before + gemm_rate(a.gemm, a.threads)) / 2

    def theirs():
        return statistics.median(run_torch(a.python, shape, a.steps, a.threads, env))

    if memrun_first:
        (seconds, rate), peer = ours(), theirs()
    else:
        peer, (seconds, rate) = theirs(), ours()
    return seconds, peer, rate


def print_shape(a, name, env):
    shape = SHAPES[name]
    rounds = [run_round(a, shape, env, i % 2 == 0) for i in range(a.rounds)]
    gflop = step_flops(shape) * 1e-9
    columns = (
        1e3 * statistics.median(r[0] for r in rounds),
        1e3 * statistics.median(r[1] for r in rounds),
        statistics.median(r[1] / r[0] for r in rounds),
        statistics.median(gflop / r[0] for r in rounds),
        statistics.median(r[2] for r in rounds),
        statistics.median(gflop / r[0] / r[2] for r in rounds),
    )
    print("%-14s %12.0f %12.0f %8.2f %10.0f %10.0f %8.3f" % (name, *columns), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memrun", default="build/release/tools/memrun")
    parser.add_argument("--gemm", default="build/release/bench/bench_compute")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--torch-env", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    a = parser.parse_args()
    env = dict(x.split("=", 1) for x in a.torch_env)
    print("# python3 " + " ".join(sys.argv))
    head = ("shape", "memrun ms", "pytorch ms", "ratio", "GFLOP/s", "GEMM", "share")
    print("%-14s %12s %12s %8s %10s %10s %8s" % head, flush=True)
    for name in a.shape or SHAPES:
        print_shape(a, name, env)


if __name__ == "__main__":
    main()
