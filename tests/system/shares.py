#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun --device cuda verify with less and less of the memory that a job would take at most.

Takes `fake` or `real` after the scratch folder, then shares in percent (100,50,25), then the job's
options. Of what the device lacks the host has room for three fifths, and the rest goes to files.
"""

import sys
import unittest

import cuda_device
import harness
from cuda_device import run

SHARES = []
JOB = []


class Shares(harness.Case):

    def test_shares(self):
        footprint = run("plan", *JOB).events("plan")[0]["footprint_bytes"]
        for share in SHARES:
            with self.subTest(percent=100 * share):
                self.verify(share, footprint)

    def verify(self, share, footprint):
        device = cuda_device.in_use() + int(share * footprint)
        options = ["--offload", "nvme", "--nvme", harness.scratch / "nvme", "--device-mem", device,
                   "--host-mem", int(0.6 * (1 - share) * footprint)]
        plan = run("plan", *JOB, *options)
        self.assert_status(plan, 0)
        links = plan.events("plan")[0]["links"]
        moved = {link: links[link]["bytes"] for link in harness.LINK_KEYS}
        if share < 1:
            self.assertGreater(sum(moved.values()), 0)
        outcome = run("verify", *JOB, *options)
        self.assert_status(outcome, 0)
        event = outcome.events("verify")[0]
        self.assertTrue(event["equal"])
        print("%g %% of %d MiB: %d tensors equal after %d steps; MiB a step: %s" % (
            100 * share, footprint // harness.MIB, event["tensors"], event["steps"],
            ", ".join("%s %d" % (link, moved[link] // harness.MIB) for link in moved)), flush=True)


if __name__ == "__main__":
    SHARES = [float(percent) / 100 for percent in sys.argv[4].split(",")]
    JOB = sys.argv[5:]
    del sys.argv[4:]
    harness.TIMEOUT = 540  # the larger models write and read back tens of GB
    cuda_device.begin()
    unittest.main(verbosity=2)
