#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The n-th NVMe transfer fails, for every n of a short run, in every way, on one engine.

Takes the I/O engine after the device.
"""

import functools
import sys

import common
from common import harness

MOST = 400  # transfers of the run; it has a few dozen
SAMPLE = 12  # of the n that are tried for faults that are mended


class Inject(harness.Case):

    @classmethod
    def setUpClass(cls):
        # Updates run in the next step, and behind the last in a flush.
        cls.job = common.Job(ENGINE, steps=2, more=["--defer", "always"])

    @classmethod
    def inject(cls, *faults):
        return cls.job.run(resume=True, env={"MEMRUN_INJECT": ",".join(faults)})

    @classmethod
    @functools.cache
    def count(cls, direction):
        """The transfers of the run in that direction: beyond the last, a fault changes nothing."""
        low, high = 0, MOST
        while low < high:
            middle = (low + high) // 2
            if cls.inject(*for_good(direction, middle + 1)).status == 0:
                high = middle
            else:
                low = middle + 1
        return low

    def assert_ends(self, outcome, statuses):
        if outcome.status == 0:
            self.assertEqual(outcome.events("done")[0]["losses"], self.job.losses, str(outcome))
            return
        self.assertIn(outcome.status, statuses, str(outcome))
        # Faults that were mended meanwhile are told too.
        fatal = [line for line in outcome.errors() if "second try" not in line]
        self.assertEqual(len(fatal), 1, str(outcome))
        self.assertEqual(outcome.events("done"), [])

    def test_every_write_fails_in_every_way(self):
        count = self.count("write")
        print("%s: %d writes" % (ENGINE, count), flush=True)
        self.assertGreater(count, 4)
        self.assertLess(count, MOST)
        for number in range(1, count + 1):
            for fault in ("eio", "enospc"):
                outcome = self.inject("write:%s:%d" % (fault, number))
                self.assert_fails(outcome, harness.IO)
        self.job.check_resumes(self)

    def test_short_writes_go_on(self):
        for number in spread(self.count("write")):
            self.assert_ends(self.inject("write:short:%d" % number), ())
        self.assert_ends(self.inject("write:short:0"), (harness.IO,))

    def test_flipped_bits_are_seen_when_they_come_back(self):
        seen = 0
        count = self.count("write")
        for number in range(1, count + 1):
            outcome = self.inject("write:flip:%d" % number)
            self.assert_ends(outcome, (harness.CORRUPT,))
            seen += outcome.status == harness.CORRUPT
        self.assertGreater(seen, 0)
        self.job.check_resumes(self)

    def test_reads_that_fail_once_are_mended(self):
        count = self.count("read")
        print("%s: %d reads" % (ENGINE, count), flush=True)
        self.assertGreater(count, 4)
        self.assertLess(count, MOST)
        for number in range(1, count + 1):
            for fault in ("eio", "flip"):
                self.assert_ends(self.inject("read:%s:%d" % (fault, number)), ())
        for number in spread(count):
            self.assert_ends(self.inject("read:short:%d" % number), ())

    def test_reads_that_fail_for_good(self):
        self.assert_fails(self.inject("read:eio:0"), harness.IO)
        self.assert_fails(self.inject("read:flip:0"), harness.CORRUPT)
        self.assert_ends(self.inject("read:short:0"), (harness.IO,))
        for number in spread(self.count("read")):
            self.assert_ends(self.inject(*for_good("read", number)), (harness.IO,))
        self.job.check_resumes(self)

    def test_transfer_that_hangs(self):
        outcome = self.job.run("--io-timeout", "0.5", resume=True,
                               env={"MEMRUN_INJECT": "read:hang:2"})
        self.assertEqual(outcome.status, harness.IO, str(outcome))
        self.assertGreaterEqual(len(outcome.errors()), 1)
        self.job.check_resumes(self)


def for_good(direction, number):
    """A read is repeated once, perhaps after others that were under way."""
    if direction == "write":
        return ["write:eio:%d" % number]
    return ["read:eio:%d" % (number + more) for more in range(8)]


def spread(count):
    """SAMPLE numbers from 1 to count, the first and the last among them."""
    step = max(1, count // SAMPLE)
    return sorted(set(range(1, count + 1, step)) | {count})


if __name__ == "__main__":
    ENGINE = sys.argv.pop(4)
    common.main()
