# SPDX-License-Identifier: Apache-2.0
"""What the fault tests share: the device they run on, a short job that goes on from a checkpoint,
and how it must end.

Each script takes `cpu` or `cuda` after the scratch folder; `cuda` is the fake driver's device, on
which steps take so much longer that there are fewer of them.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import cuda_device  # noqa: E402  (its folder was just added)
import harness  # noqa: E402

DEVICE = None
# Small enough for hundreds of runs; its budgets make a few dozen transfers.
CPU_MODEL = ["--layers", "2", "--heads", "2", "--width", "64", "--vocab", "256", "--batch", "2",
             "--seq", "32", "--threads", "2"]
# A CUDA device maps 2 MiB at once, and the fake driver takes a second for a few million elements:
# the embedding alone is large enough to leave the device.
CUDA_MODEL = ["--layers", "1", "--heads", "1", "--width", "64", "--vocab", "8192", "--batch", "1",
              "--seq", "4", "--threads", "2"]
MODEL = None


def begin():
    """Takes the program, the scratch folder and the device from the command line."""
    global DEVICE, MODEL
    DEVICE = sys.argv.pop(3)
    MODEL = {"cpu": CPU_MODEL, "cuda": CUDA_MODEL}[DEVICE]
    harness.begin()


def main():
    begin()
    harness.unittest.main(verbosity=2)


def environment(env):
    device = cuda_device.environment() if DEVICE == "cuda" else {}
    return {**device, **(env or {})}


def run(*arguments, env=None):
    """harness.run on the device."""
    return harness.run("--device", DEVICE, *arguments, env=environment(env))


def start(arguments, **keywords):
    """harness.start on the device."""
    return harness.start(["--device", DEVICE, *arguments], environment(None), **keywords)


def device_bytes(share):
    """A budget for the model between the smallest one (0) and all that it can use (1)."""
    most, smallest = harness.budgets(MODEL, run)
    return max(65536, smallest + int((most - smallest) * share))


class Job:
    """A job with a checkpoint after its first step, and what it gives when nothing fails."""

    def __init__(self, engine, steps=3, more=(), plans=False):
        """`plans`: each run makes its plan, which takes most of its time, instead of reading it."""
        self.more = list(more)
        self.engine = engine
        self.steps = steps
        self.device = device_bytes(0.1)
        self.ckpt = harness.folder("ckpt-" + engine)
        self.plan = []
        if not plans:
            path = harness.scratch / ("plan-" + engine)
            planned = run("plan", *self.options(), "--out", path)
            if planned.status != 0:
                raise AssertionError(str(planned))
            self.plan = ["--plan", path]
        first = self.run("--ckpt", self.ckpt, steps=1)
        if first.status != 0:
            raise AssertionError(str(first))
        whole = self.run(resume=True)
        if whole.status != 0:
            raise AssertionError(str(whole))
        done = whole.events("done")[0]
        self.losses = done["losses"]
        for link in ("nvme_read", "nvme_write"):
            if done["plan"]["moved_bytes"][link] == 0:
                raise AssertionError("no %s that could fail: %s" % (link, whole))

    def options(self, nvme=None):
        return [*MODEL, "--device-mem", self.device, "--host-mem", "0", "--offload", "nvme",
                "--nvme", nvme or harness.scratch / "nvme", "--io-engine", self.engine,
                *self.more]

    def arguments(self, *more, resume=False, steps=None, nvme=None):
        arguments = ["train", "--json", *self.options(nvme), "--steps", steps or self.steps,
                     *self.plan]
        if resume:
            arguments += ["--resume", self.ckpt]
        return arguments + list(more)

    def run(self, *more, env=None, **which):
        return run(*self.arguments(*more, **which), env=env)

    def check_resumes(self, case):
        """The checkpoint made before is whole: the job goes on from it to the same losses."""
        outcome = self.run(resume=True)
        case.assert_status(outcome, 0)
        case.assertEqual(outcome.events("done")[0]["losses"], self.losses)
