# SPDX-License-Identifier: Apache-2.0
"""What the fault tests share: a short job that goes on from a checkpoint, and how it must end."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness  # noqa: E402  (its folder was just added)

# Small enough for hundreds of runs; its budgets make a few dozen transfers.
MODEL = ["--layers", "2", "--heads", "2", "--width", "64", "--vocab", "256", "--batch", "2",
         "--seq", "32", "--threads", "2"]


class Job:
    """A job with a checkpoint after its first step, and what it gives when nothing fails."""

    def __init__(self, engine, steps=3, more=(), plans=False):
        """`plans`: each run makes its plan, which takes most of its time, instead of reading it."""
        self.model = MODEL
        self.more = list(more)
        self.engine = engine
        self.steps = steps
        footprint, smallest = harness.budgets(MODEL)
        self.device = max(65536, smallest + (footprint - smallest) // 10)
        self.ckpt = harness.folder("ckpt-" + engine)
        self.plan = []
        if not plans:
            path = harness.scratch / ("plan-" + engine)
            planned = harness.run("plan", *self.options(), "--out", path)
            if planned.status != 0:
                raise AssertionError(str(planned))
            self.plan = ["--plan", path]
        first = self.run("--ckpt", self.ckpt, steps=1)
        if first.status != 0:
            raise AssertionError(str(first))
        whole = self.run(resume=True)
        if whole.status != 0:
            raise AssertionError(str(whole))
        self.losses = whole.events("done")[0]["losses"]
        self.moved = {link: sum(event["moved_bytes"][link] for event in whole.events("step"))
                      for link in harness.LINK_KEYS}

    def options(self, nvme=None):
        return [*self.model, "--device-mem", self.device, "--host-mem", "0", "--offload", "nvme",
                "--nvme", nvme or harness.scratch / "nvme", "--io-engine", self.engine,
                *self.more]

    def run(self, *more, env=None, resume=False, steps=None, nvme=None):
        arguments = ["train", "--json", *self.options(nvme), "--steps", steps or self.steps,
                     *self.plan]
        if resume:
            arguments += ["--resume", self.ckpt]
        return harness.run(*arguments, *more, env=env)

    def check_resumes(self, case):
        """The checkpoint made before is whole: the job goes on from it to the same losses."""
        outcome = self.run(resume=True)
        case.assert_status(outcome, 0)
        case.assertEqual(outcome.events("done")[0]["losses"], self.losses)
