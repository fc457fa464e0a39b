#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench pressure on a CUDA device, where what any process has there counts against a budget.

Takes `fake` or `real` after the scratch folder, then the job's options: of a job whose footprint is
more than the context and libraries have on the device.
"""

import json
import pathlib
import subprocess
import sys
import unittest

import cuda_device
import harness

JOB = []


class Sweep(harness.Case):

    @classmethod
    def setUpClass(cls):
        """Runs the sweep, and looks whenever a run begins at what its own process has loaded."""
        results = harness.folder("sweep") / "found"
        cls.job = [*JOB, "--offload", "host", "--steps", "2"]
        process = cuda_device.start("bench", "pressure", *cls.job, "-v", "--rounds", "1",
                                    "--budgets", "min", "--results", results,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        lines = []
        cls.drivers = []
        try:
            for line in process.stderr:
                lines.append(line)
                if ": round 1" in line:
                    maps = pathlib.Path("/proc/%d/maps" % process.pid).read_text()
                    cls.drivers.append("libcuda" in maps)
            status = process.wait(timeout=harness.TIMEOUT)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        cls.outcome = harness.Outcome(list(map(str, process.args)), status, "", "".join(lines))
        path = results.with_suffix(".json")
        cls.found = json.loads(path.read_text()) if path.exists() else None

    def test_each_budget_is_measured(self):
        self.assert_status(self.outcome, 0)
        rows = self.found["rows"]
        self.assertEqual([row["state"] for row in rows], ["measured"] * 2)
        self.assertEqual(rows[-1]["device_bytes"], self.found["smallest_device_bytes"])
        for row in rows:
            self.assertLessEqual(row["peak_bytes"]["device"], row["budget_bytes"]["device"])

    def test_the_device_has_one_context_at_a_time(self):
        """That of the run: the sweep's own process would have memory of the device beside it."""
        self.assertEqual(self.drivers, [False] * 2, str(self.outcome))

    def test_the_smallest_budget_has_something_to_spare(self):
        """What a plan counts of the device is a little different in each process."""
        plan = cuda_device.run("plan", *self.job, "--device-mem", "64KiB")
        self.assert_status(plan, harness.DOES_NOT_FIT)
        spare = (self.found["smallest_device_bytes"] -
                 plan.events("plan")[0]["smallest_device_bytes"])
        slack = 16 * harness.MIB if cuda_device.REAL else 0
        self.assertAlmostEqual(spare, 16 * harness.MIB, delta=slack)


if __name__ == "__main__":
    JOB = sys.argv[4:]
    del sys.argv[4:]
    cuda_device.begin()
    unittest.main(verbosity=2)
