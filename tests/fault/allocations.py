#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The n-th allocation fails: every early one, then a random sample over the whole run.

Takes the preloaded library after the device.
"""

import random
import sys

import common
from common import harness

EVERY = 60
SAMPLE = {"cpu": 60, "cuda": 20}
REPLAN = ["--replan", "always"]


class Allocations(harness.Case):

    def fail_each(self, statuses, steps=2, plans=True, more=(), **which):
        """Fails one allocation after another; `which` says whose."""
        job = common.Job("auto", steps=steps, plans=plans, more=more)
        counted = harness.scratch / "count"
        outcome = job.run("--ckpt", harness.folder("other"), *REPLAN, resume=True,
                          env=dict(which, LD_PRELOAD=SHIM, FAILMALLOC_COUNT=counted))
        self.assert_status(outcome, 0)
        total = int(counted.read_text())
        print("%d allocations" % total, flush=True)
        self.assertGreater(total, EVERY)
        source = random.Random(harness.seed())
        numbers = list(range(1, EVERY + 1))
        numbers += sorted(source.sample(range(EVERY + 1, total + 1),
                                        min(SAMPLE[common.DEVICE], total - EVERY)))
        for number in numbers:
            outcome = job.run("--ckpt", harness.folder("other"), *REPLAN, resume=True,
                              env=dict(which, LD_PRELOAD=SHIM, FAILMALLOC=number))
            with self.subTest(number=number):
                if outcome.status == 0:
                    self.assertEqual(outcome.events("done")[0]["losses"], job.losses)
                else:
                    self.assertIn(outcome.status, statuses, str(outcome))
                    self.assert_fails(outcome, outcome.status)
        job.check_resumes(self)

    def test_of_memrun(self):
        self.fail_each((harness.DOES_NOT_FIT,))

    def test_with_a_kept_plan(self):
        """Without a planner the device and the store ask for the most."""
        self.fail_each((harness.DOES_NOT_FIT,), plans=False)

    def test_with_another_plan(self):
        """The fourth step has a plan of its own."""
        self.fail_each((harness.DOES_NOT_FIT,), steps=4, plans=False)

    def test_of_the_json_library(self):
        """The search asks it for nothing, and is left out."""
        self.fail_each((harness.DOES_NOT_FIT,), more=["--policy", "first"],
                       FAILMALLOC_OBJECT="/libjansson")


if __name__ == "__main__":
    SHIM = sys.argv.pop(4)
    common.main()
