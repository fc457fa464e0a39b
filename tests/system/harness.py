# SPDX-License-Identifier: Apache-2.0
"""Runs memrun for the system and fault tests, and reads what it says.

A test script is called as: script.py MEMRUN SCRATCH [UNITTEST ARGUMENTS]. Each script has a scratch
folder of its own on a real file system, in which NVMe files, checkpoints and the profile lie.
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import unittest

SKIPPED = 77
MIB = 1 << 20
OVERHEAD = 96 * MIB  # what a process may use beside its device and host budgets
TIMEOUT = 240  # seconds, of one command
SANITIZED = os.environ.get("MEMRUN_SANITIZE", "") != ""  # whose memory is not memrun's

USAGE = 2
DOES_NOT_FIT = 3
IO = 4
CORRUPT = 5
INTERRUPTED = 130

STEP_KEYS = ["event", "step", "loss", "grad_norm", "seconds", "predicted_seconds", "bound_by",
             "tokens_per_second", "moved_bytes"]
LINK_KEYS = ["device_to_host", "host_to_device", "nvme_read", "nvme_write"]
TIER_KEYS = ["device", "host", "nvme"]
DONE_KEYS = ["event", "steps", "losses", "tokens_per_second", "footprint_bytes", "budget_bytes",
             "peak_bytes"]

# A model of half a million parameters: a step takes milliseconds.
TINY = ["--layers", "2", "--heads", "2", "--width", "64", "--vocab", "256", "--batch", "2",
        "--seq", "32", "--steps", "4", "--threads", "2"]

memrun = None
scratch = None
fake_driver = None  # CUDA over host memory


def job(*more):
    """A run of the tiny model; later options count."""
    return ["train", "--json", *TINY, *more]


class Outcome:
    """What a command left behind."""

    def __init__(self, arguments, status, out, err):
        self.arguments = arguments
        self.status = status
        self.out = out
        self.err = err

    def events(self, name=None):
        """The JSON lines, in order; each must be one whole object."""
        found = []
        for line in self.out.splitlines():
            event = json.loads(line, parse_constant=refuse_constant)
            if not isinstance(event, dict):
                raise ValueError("not an object: " + line)
            found.append(event)
        return [event for event in found if name is None or event["event"] == name]

    def errors(self):
        return self.err.splitlines()

    def __str__(self):
        return "memrun %s\nstatus %s\n--- stdout\n%s--- stderr\n%s" % (
            " ".join(self.arguments), self.status, self.out[-4000:], self.err[-4000:])


def refuse_constant(name):
    raise ValueError(name + " is no JSON")


def environment(**extra):
    values = dict(os.environ, XDG_CACHE_HOME=str(scratch / "cache"), TMPDIR=str(scratch / "tmp"),
                  LC_ALL="C.UTF-8")
    for name in ("MEMRUN_INJECT", "MEMRUN_CUDA_DRIVER"):
        values.pop(name, None)
    values.update({name: str(value) for name, value in extra.items()})
    return values


def start(arguments, env=None, **keywords):
    return subprocess.Popen([memrun, *map(str, arguments)], env=environment(**(env or {})),
                            stdin=subprocess.DEVNULL, text=True, **keywords)


def run(*arguments, env=None, **keywords):
    """Runs a command to its end."""
    keywords.setdefault("stdout", subprocess.PIPE)
    keywords.setdefault("stderr", subprocess.PIPE)
    process = start(arguments, env, **keywords)
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError("ran longer than %d s: %s\n%s\n%s" % (TIMEOUT, arguments, out, err))
    return Outcome(list(map(str, arguments)), process.returncode, out or "", err or "")


def folder(name):
    """A fresh folder in the scratch folder."""
    path = scratch / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def profile_of(machine, cache=None):
    """Where the machine's profile is kept unless another file is named."""
    name = "-".join(["profile", *re.findall("[A-Za-z0-9]+", machine)])
    return (cache or scratch / "cache") / "memrun" / (name + ".json")


def nvme(name="nvme"):
    return ["--nvme", str(scratch / name), "--offload", "nvme"]


def budgets(job, command=run):
    """The device budget that holds all of a job, and the smallest one under NVMe offload."""
    plan = command("plan", "--json", *job, "--device-mem", "64KiB", "--host-mem", "0", *nvme())
    if plan.status not in (0, DOES_NOT_FIT):
        raise AssertionError(str(plan))
    event = plan.events("plan")[0]
    return event["footprint_bytes"] + event["outside_bytes"], event["smallest_device_bytes"] or 0


def write_profile(path, profile, per_flop=2e-11, per_byte=1e-10):
    """Ops take what is written, not what they took beside other tests: a test that asks what a
    plan holds asks it of the machine that it wrote down."""
    for op in profile["ops"]:
        op["seconds_per_unit"] = per_flop if op["by_flops"] else per_byte
    path.write_text(json.dumps(profile))


def crc32c(data):
    """CRC-32C (Castagnoli), bit by bit."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def seal(text):
    """The text of a kept plan that was changed, with a checksum that is right."""
    body = text[:text.index(',\n"crc32c"')]
    return '%s,\n"crc32c":"%08x"}\n' % (body, crc32c(body.encode()))


def count_early(path, link):
    """Of a plan that was kept: moves out over the link of what an op still uses."""
    plan = json.loads(path.read_text())
    count = len(plan["compute"])

    def since_birth(op, stay):
        return (op - plan["instances"][stay][1]) % count

    last = {}
    for op, (operands, *_) in enumerate(plan["compute"]):
        for stay in operands:
            if stay >= 0:
                last[stay] = max(last.get(stay, 0), since_birth(op, stay))
    return sum(last.get(stay, 0) > since_birth(op, stay) for op, _, stay, *_ in plan[link])


def bf16():
    """Options for layers in bf16, with the readable kernels where others cannot run here."""
    wanted = ["--dtype", "bf16"]
    return wanted if run("plan", *TINY, *wanted).status == 0 else wanted + ["--reference"]


class Case(unittest.TestCase):
    """Checks that every test needs."""

    maxDiff = None

    def assert_status(self, outcome, status):
        self.assertEqual(outcome.status, status, str(outcome))

    def assert_fails(self, outcome, status, *words):
        """One line on standard error, which has the words, and the status."""
        self.assert_status(outcome, status)
        self.assertEqual(len(outcome.errors()), 1, str(outcome))
        for word in words:
            self.assertIn(str(word), outcome.err, str(outcome))

    def assert_keys(self, event, keys, whole=False):
        """The keys stand first, in this order; `whole`: there are no others."""
        found = list(event)
        self.assertEqual(found if whole else found[:len(keys)], keys)


def seed():
    """A seed that is printed, so that a failure can be repeated with MEMRUN_TEST_SEED."""
    value = int(os.environ.get("MEMRUN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    print("MEMRUN_TEST_SEED=%d" % value, flush=True)
    return value


def skip(reason):
    print("skipped: " + reason, flush=True)
    sys.exit(SKIPPED)


def begin():
    """Takes the program and the scratch folder from the command line."""
    global memrun, scratch, fake_driver
    if len(sys.argv) < 3:
        sys.exit("usage: %s MEMRUN SCRATCH [TEST]" % sys.argv[0])
    memrun = str(pathlib.Path(sys.argv[1]).resolve())
    scratch = pathlib.Path(sys.argv[2]).resolve()
    fake_driver = scratch.parent.parent / "fake" / "libcuda.so.1"
    for name in ("tmp", "nvme", "cache"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    del sys.argv[1:3]


def main():
    begin()
    unittest.main(verbosity=2)
