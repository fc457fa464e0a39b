#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun plan --problem: schedules that a replay accepts, and what is said of bad files.

Takes the replay program and the folder of problems after the scratch folder.
"""

import os
import pathlib
import subprocess
import sys
import threading

import harness

KEYS = ["event", "fits", "segments", "tensors", "seconds", "bound_seconds", "bound_kind",
        "gap_percent", "bound_by", "compute_seconds", "links", "gaps_bytes"]
MOST_GAP = 0.006
# Two segments and a tensor between them; 6 bytes do where it leaves, 4 never do.
SMALL = "2 1 %d 10 1 1 1 1\n1 1\n4 4\n3 0 1 1e9 0 0 0\n"


def write(name, text):
    path = harness.scratch / name
    path.write_text(text)
    return path


class Problem(harness.Case):

    def check(self, path):
        """Plans a problem, replays the schedule and returns (seconds, bound)."""
        schedule = harness.scratch / (path.name + ".schedule")
        outcome = harness.run("plan", "--problem", path, "--schedule", schedule)
        self.assert_status(outcome, 0)
        self.assertIn("verdict    fits", outcome.out)
        replay = subprocess.run([REPLAY, path, schedule], stdout=subprocess.PIPE, text=True,
                                check=False)
        self.assertEqual(replay.returncode, 0, replay.stdout)
        return [float(word) for word in replay.stdout.split()]

    def test_given_problems(self):
        for name, best_bound in (("i16a.txt", 1.303677), ("s32.txt", 4.667565)):
            seconds, bound = self.check(DATA / name)
            self.assertLess(seconds / best_bound - 1, MOST_GAP)
            self.assertLess(seconds / bound - 1, MOST_GAP)

    def test_json(self):
        outcome = harness.run("plan", "--json", "--problem", DATA / "i16a.txt")
        self.assert_status(outcome, 0)
        event = outcome.events("schedule")[0]
        self.assert_keys(event, KEYS, whole=True)
        self.assertEqual((event["segments"], event["tensors"]), (64, 176))
        self.assertGreaterEqual(event["seconds"], event["bound_seconds"])
        self.assertEqual(list(event["links"]),
                         ["device_to_host", "host_to_device", "nvme_write", "nvme_read"])
        self.assertEqual(list(event["gaps_bytes"]), ["kept", "host", "nvme", "recomputed"])

    def test_lp_bound(self):
        outcome = harness.run("plan", "--json", "--bound", "lp", "--problem", DATA / "s32.txt")
        if outcome.status == harness.USAGE:
            self.assert_fails(outcome, harness.USAGE, "libClp.so.1", "coinor-libclp1", "libglpk40")
            self.skipTest("no library for linear programs")
        self.assert_status(outcome, 0)
        event = outcome.events("schedule")[0]
        self.assertIn(event["bound_kind"], ("cut", "lp"))
        self.assertGreaterEqual(event["bound_seconds"], 4.667565 * (1 - 1e-6))
        self.assertGreaterEqual(event["seconds"], event["bound_seconds"])

    def test_what_does_not_fit(self):
        schedule = harness.scratch / "none.schedule"
        schedule.unlink(missing_ok=True)
        tight = write("tight.txt", SMALL % 3)
        outcome = harness.run("plan", "--problem", tight, "--schedule", schedule)
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "3 bytes", "would do is 4 bytes")
        self.assertFalse(schedule.exists())
        self.check(write("enough.txt", SMALL % 4))

    def test_bad_files(self):
        bad = write("bad.txt", "2 1 4 10 1 1 1 1\n1 1\n4 x\n")
        outcome = harness.run("plan", "--problem", bad)
        self.assert_fails(outcome, harness.USAGE, "bad.txt: line 3, word 2", "'x'")
        outcome = harness.run("plan", "--problem", harness.scratch / "missing.txt")
        self.assert_fails(outcome, harness.IO, "missing.txt", "No such file")
        outcome = harness.run("plan", "--problem", DATA / "i16a.txt", "--schedule",
                              harness.scratch / "missing" / "schedule")
        self.assert_fails(outcome, harness.IO, "schedule", "No such file")

    def test_a_directory_and_a_pipe(self):
        outcome = harness.run("plan", "--problem", harness.scratch)
        self.assert_fails(outcome, harness.IO, "Is a directory")
        from_file = harness.run("plan", "--problem", DATA / "i16a.txt")
        pipe = harness.scratch / "pipe"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        text = (DATA / "i16a.txt").read_text()
        writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        outcome = harness.run("plan", "--problem", pipe)
        writer.join()
        self.assert_status(outcome, 0)
        self.assertEqual(outcome.out, from_file.out)

    def test_a_gap_above_nothing_is_unknown(self):
        # Segments that take no time, and a byte that must cross two links.
        nothing = write("nothing.txt", "3 1 1 0 1 1 1 1\n0 0 0\n0 1 0\n1 0 2 1e9 0 0 0\n")
        outcome = harness.run("plan", "--problem", nothing)
        self.assert_status(outcome, 0)
        self.assertIn("gap        unknown", outcome.out)
        event = harness.run("plan", "--json", "--problem", nothing).events("schedule")[0]
        self.assertIsNone(event["gap_percent"])
        self.assertGreater(event["seconds"], 0)

    def test_options_that_say_nothing(self):
        outcome = harness.run("plan", "--problem", DATA / "i16a.txt", "--layers", "2")
        self.assert_fails(outcome, harness.USAGE, "--layers")
        outcome = harness.run("plan", "--bound", "lp")
        self.assert_fails(outcome, harness.USAGE, "--bound", "--problem")
        outcome = harness.run("plan", "--schedule", "out")
        self.assert_fails(outcome, harness.USAGE, "--problem")


if __name__ == "__main__":
    REPLAY = sys.argv.pop(3)
    DATA = pathlib.Path(sys.argv.pop(3))
    harness.main()
