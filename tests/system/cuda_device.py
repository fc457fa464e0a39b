# SPDX-License-Identifier: Apache-2.0
"""The CUDA device of a test: the fake driver's, or (the word `real`) the machine's own."""

import functools
import json
import os
import sys

import harness

REAL = False
SMALLEST = ["--layers", "1", "--heads", "1", "--width", "8", "--vocab", "16", "--batch", "1",
            "--seq", "2", "--steps", "1"]


def missing(reason):
    """Skips; where a device must be there, fails."""
    if "MEMRUN_REQUIRE_DEVICE" in os.environ:
        sys.exit("failed: " + reason)
    harness.skip(reason)


def begin():
    """Takes the word from the command line; without a device of its own the test skips."""
    global REAL
    REAL = sys.argv.pop(3) == "real"
    harness.begin()
    if REAL:
        device = describe()
        if not device["available"]:
            missing(device["reason"])
        outcome = run("train", *SMALLEST)
        if outcome.status == harness.USAGE:  # no kernels, or no cuBLASLt
            missing(outcome.err.strip())


def environment(**more):
    if REAL:
        return more
    fakes = harness.fake_driver.parent
    return {"MEMRUN_CUDA_DRIVER": fakes / "libcuda.so.1",
            "MEMRUN_CUBLASLT": fakes / "libcublasLt.so.13",
            "MEMRUN_CUDA_KERNELS": __file__,  # any image is one to the fake driver
            **more}


def run(command, *arguments, **more):
    return harness.run("--device", "cuda", command, "--json", *arguments, env=environment(**more))


def start(command, *arguments, **keywords):
    return harness.start(["--device", "cuda", command, "--json", *arguments], environment(),
                         **keywords)


def describe():
    outcome = harness.run("info", "--json", env=environment())
    return next(device for device in json.loads(outcome.out)["devices"]
                if device["name"] == "cuda")


@functools.cache
def in_use():
    """What counts against a budget before a job's first byte: contexts, kernels, others."""
    return run("plan", *SMALLEST).events("plan")[0]["outside_bytes"]
