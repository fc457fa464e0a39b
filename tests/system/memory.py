#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs within memory control groups of exactly device + host budget + 96 MiB."""

import json
import os
import pathlib
import time

import harness

JOB = ["--layers", "6", "--heads", "4", "--width", "256", "--vocab", "8192", "--batch", "4",
       "--seq", "128", "--steps", "2", "--threads", "2"]
HOST = 8 * harness.MIB


class Group:
    """A memory control group with a limit, in version 1 or 2 of the interface."""

    def __init__(self, limit):
        self.path, files = find()
        self.path = self.path / ("memrun-test-%d" % os.getpid())
        self.path.mkdir(exist_ok=True)
        (self.path / files[0]).write_text(str(limit))
        for name in files[1:]:
            if (self.path / name).exists():
                (self.path / name).write_text("0" if name.endswith("swap.max") else str(limit))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        for name in ("memory.oom_control", "memory.events"):
            if (self.path / name).exists():
                for line in (self.path / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self):
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def find():
    """Where groups can be made, and the files that hold the limits."""
    old = pathlib.Path("/sys/fs/cgroup/memory")
    if (old / "memory.limit_in_bytes").exists():
        return old, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    return pathlib.Path("/sys/fs/cgroup"), ["memory.max", "memory.swap.max"]


def can_make_groups():
    try:
        group = Group(1 << 30)
    except OSError as error:
        print(error)
        return False
    group.remove()
    return True


class Memory(harness.Case):

    def train(self, device):
        group = Group(device + HOST + harness.OVERHEAD)
        try:
            outcome = harness.run("train", "--json", *JOB, *harness.nvme(), "--device-mem", device,
                                  "--host-mem", HOST, preexec_fn=group.enter)
            self.assertEqual(group.kills(), 0, str(outcome))
        finally:
            group.remove()
        self.assert_status(outcome, 0)
        done = outcome.events("done")[0]
        self.assertLessEqual(done["peak_bytes"]["resident"], device + HOST + harness.OVERHEAD)
        self.assertLessEqual(done["peak_bytes"]["device"], device)
        self.assertLessEqual(done["peak_bytes"]["host"], HOST)
        print("device %5.1f MiB of %.1f: resident %.1f MiB of %.1f" % (
            device / harness.MIB, done["footprint_bytes"] / harness.MIB,
            done["peak_bytes"]["resident"] / harness.MIB,
            (device + HOST + harness.OVERHEAD) / harness.MIB), flush=True)
        return done["losses"]

    def test_five_budgets(self):
        plan = harness.run("plan", "--json", *JOB, *harness.nvme(), "--device-mem", "64KiB",
                           "--host-mem", HOST)
        event = plan.events("plan")[0]
        footprint, smallest = event["footprint_bytes"], event["smallest_device_bytes"]
        losses = [self.train(smallest + int(part * (footprint - smallest)))
                  for part in (0, 0.1, 0.25, 0.5, 1)]
        self.assertEqual(losses, [losses[0]] * 5)

    def test_budgets_follow_the_group(self):
        limit = 600 * harness.MIB
        group = Group(limit)
        try:
            outcome = harness.run("plan", "--json", *harness.TINY, "--offload", "host",
                                  preexec_fn=group.enter)
        finally:
            group.remove()
        self.assert_status(outcome, 0)
        budget = outcome.events("plan")[0]["budget_bytes"]
        self.assertLessEqual(budget["device"] + budget["host"], limit)

    def test_pressure_without_room_for_the_whole_job(self):
        """A sweep is also for what does not fit here without budgets: no speed is told then."""
        group = Group(64 * harness.MIB + harness.OVERHEAD)
        name = harness.folder("pressure") / "sweep"
        words = ["bench", "pressure", *JOB[:-4], "--steps", "2", *harness.nvme(), "--rounds", "1",
                 "--budgets", "25%", "--threads", "2", "--results", name]
        try:
            table = harness.run(*words, preexec_fn=group.enter)
        finally:
            group.remove()
        self.assert_status(table, 0)
        rows = [line.split() for line in table.out.splitlines() if line.lstrip()[:1].isdigit()]
        self.assertEqual(rows[0][4:], ["does", "not", "fit", "here"])
        self.assertEqual((rows[1][0], rows[1][13:15]), ("25", ["-", "-"]))
        results = json.loads(name.with_suffix(".json").read_text(encoding="utf-8"))
        self.assertEqual([row["state"] for row in results["rows"]], ["does not fit", "measured"])
        self.assertIsNone(results["rows"][1]["speed"])
        self.assertNotIn("nan", name.with_suffix(".svg").read_text(encoding="utf-8"))


if __name__ == "__main__":
    harness.begin()
    if not can_make_groups():
        harness.skip("no memory control group can be made here")
    harness.unittest.main(verbosity=2)
