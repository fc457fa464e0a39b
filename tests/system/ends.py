#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun train: how it ends, whatever ends it, and what it draws on a terminal."""

import fcntl
import os
import pty
import resource
import signal
import struct
import subprocess
import termios
import time

import harness
from harness import TINY, job


class Ends(harness.Case):

    def interrupt(self, first, second=None, more=()):
        process = harness.start(job("--steps", "1000000", *more), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            self.assertTrue(all('"step"' in line for line in lines), lines)
            process.send_signal(first)
            if second is not None:
                process.send_signal(second)
            out, err = process.communicate(timeout=harness.TIMEOUT)
        finally:
            process.kill()
        return harness.Outcome(["train"], process.returncode, "".join(lines) + out, err)

    def test_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            outcome = self.interrupt(number)
            self.assert_fails(outcome, harness.INTERRUPTED, "interrupted after step")
            self.assert_keys(outcome.events()[-1], ["event"] + harness.DONE_KEYS[1:])
            self.assertEqual(outcome.events()[-1]["event"], "interrupted")

    def test_signal_leaves_a_checkpoint(self):
        path = harness.folder("interrupted")
        outcome = self.interrupt(signal.SIGINT, more=["--ckpt", path])
        self.assert_fails(outcome, harness.INTERRUPTED, "--resume " + str(path))
        last = outcome.events("step")[-1]["step"]
        rest = harness.run(*job("--resume", path, "--steps", last + 1))
        self.assertEqual([event["step"] for event in rest.events("step")], [last + 1])
        whole = harness.run(*job("--steps", last + 1))
        self.assertEqual(whole.events("done")[0]["losses"][-1], rest.events("step")[0]["loss"])

    def test_signal_in_an_evaluation(self):
        """The checkpoint that is due comes first, and the evaluation does not go on to its end."""
        path = harness.folder("evaluating")
        often = ["--steps", "10", "--eval-every", "2", "--eval-batches", "1000000"]
        process = harness.start(job(*often, "--ckpt", path, "--ckpt-every", "2"),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while '"checkpoint"' not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=harness.TIMEOUT)
        outcome = harness.Outcome(["train"], process.returncode, out, err)
        self.assert_fails(outcome, harness.INTERRUPTED, "--resume " + str(path))

    def test_second_signal_ends_at_once(self):
        self.assert_status(self.interrupt(signal.SIGINT, signal.SIGTERM), harness.INTERRUPTED)

    def test_a_limit_of_file_sizes(self):
        """It is an error like others, not a signal that ends the process without a word."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))

        path = harness.folder("limited")
        outcome = harness.run(*job("--ckpt", path), preexec_fn=limit)
        self.assert_fails(outcome, harness.IO, "File too large")
        self.assertEqual(list(path.iterdir()), [])
        outcome = harness.run(*job(*harness.nvme(), "--device-mem", "1MiB", "--host-mem", "128KiB"),
                              preexec_fn=limit)
        self.assert_fails(outcome, harness.IO, "File too large")

    def test_a_limit_of_addresses(self):
        """OpenBLAS would ask for ever for the addresses of its buffers."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (200 * harness.MIB, 200 * harness.MIB))

        outcome = harness.run(*job("--gemm", "openblas"), preexec_fn=limit)
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "no addresses for OpenBLAS")

    def test_closed_pipe(self):
        process = harness.start(job("--steps", "1000000"), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        self.assertEqual(process.wait(timeout=harness.TIMEOUT), harness.INTERRUPTED)
        process.stderr.close()
        self.assertEqual(err, "")

    def test_full_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            outcome = harness.run(*job(), stdout=full)
        self.assert_fails(outcome, harness.IO, "standard output")

    def test_closed_output(self):
        """What would be printed goes nowhere, and not into a file that the run opens."""
        for number in (0, 1, 2):
            outcome = harness.run(*job(), *harness.nvme(), "--device-mem", "1MiB", "--host-mem",
                                  "0", preexec_fn=lambda number=number: os.close(number))
            if number == 1:
                self.assert_fails(outcome, harness.IO, "standard output")
            else:
                self.assert_status(outcome, 0)


class Terminal(harness.Case):

    def draw(self, columns):
        """What a terminal so wide gets, as the lines that were drawn in place and the rest, of a
        run that is long enough for the bar to move, however fast the machine is."""
        for steps in (400, 4000, 40000):
            drawn, head = self.draw_run(columns, steps)
            if len(drawn) > 2:
                break
        return drawn, head

    def draw_run(self, columns, steps):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = harness.start(["train", *TINY, "--steps", str(steps)], stdout=slave,
                                stderr=subprocess.PIPE)
        os.close(slave)
        text = b""
        deadline = time.monotonic() + harness.TIMEOUT
        while time.monotonic() < deadline:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        self.assertEqual(process.wait(timeout=harness.TIMEOUT), 0)
        process.stderr.close()
        os.close(master)
        drawn = text.decode().split("\r\033[K")
        return drawn[1:], drawn[0]

    def test_bar(self):
        drawn, head = self.draw(160)
        self.assertIn("footprint", head)
        self.assertTrue(any("tokens/s" in line and "[" in line and "loss" in line
                            for line in drawn), drawn)
        self.assertIn("done", drawn[-1])
        for line in drawn[:-1]:
            self.assertLess(len(line), 160)

    def test_narrow(self):
        for columns in (8, 20, 40):
            drawn, _ = self.draw(columns)
            self.assertTrue(any("step" in line for line in drawn[:-1]))
            for line in drawn[:-1]:
                self.assertLess(len(line), columns)


if __name__ == "__main__":
    harness.main()
