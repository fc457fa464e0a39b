#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""File systems that are full, too small, or gone, on a small loop device. Needs root."""

import os
import shutil
import subprocess
import time

import common
from common import harness

IMAGE_MIB = 128
LONG = {"cpu": 200, "cuda": 40}  # steps of a run to which something happens after its first


class Mount:
    """A small ext4 file system of its own."""

    def __init__(self, name):
        self.image = harness.scratch / (name + ".img")
        self.path = harness.folder(name)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_MIB * harness.MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self.image], check=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True,
                       capture_output=True, timeout=60)

    def fill(self, leave):
        """Takes all but so many bytes."""
        info = os.statvfs(self.path)
        with open(self.path / "ballast", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, info.f_bavail * info.f_frsize - leave)

    def close(self):
        for _ in range(100):
            if subprocess.run(["umount", self.path], capture_output=True,
                              timeout=60).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", self.path], capture_output=True, timeout=60)
        self.image.unlink()


class Disk(harness.Case):

    @classmethod
    def setUpClass(cls):
        cls.job = common.Job("auto")

    def setUp(self):
        self.mount = Mount("disk")

    def tearDown(self):
        self.mount.close()

    def start_long(self, folder, *more):
        """A run that has done its first step, with its files in the folder."""
        process = common.start(
            self.job.arguments(*more, steps=LONG[common.DEVICE], nvme=folder),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn('"step"', process.stdout.readline())
        return process

    def end_long(self, process):
        """It ends well, after all of its steps, or one line says why."""
        out, err = process.communicate(timeout=harness.TIMEOUT)
        outcome = harness.Outcome([], process.returncode, out, err)
        self.assertIn(outcome.status, (0, harness.IO), str(outcome))
        if outcome.status == 0:
            self.assertEqual(len(outcome.events("step")) + 1, LONG[common.DEVICE])
        else:
            self.assertEqual(len(outcome.errors()), 1, str(outcome))
        return outcome

    def test_full(self):
        self.mount.fill(64 << 10)
        outcome = self.job.run(resume=True, nvme=self.mount.path)
        self.assertIn(outcome.status, (harness.DOES_NOT_FIT, harness.IO), str(outcome))
        self.assertEqual(len(outcome.errors()), 1, str(outcome))
        self.job.check_resumes(self)

    def test_limit_beyond_what_is_free(self):
        self.mount.fill(512 << 10)
        outcome = self.job.run(resume=True, nvme="%s:1GiB" % self.mount.path)
        self.assertIn(outcome.status, (harness.DOES_NOT_FIT, harness.IO), str(outcome))
        self.assertEqual(len(outcome.errors()), 1, str(outcome))

    def test_filled_while_it_runs(self):
        """The space was taken before the first step, so whoever fills the rest changes nothing."""
        process = self.start_long(self.mount.path)
        try:
            self.mount.fill(0)
        except OSError:
            pass
        self.assert_status(self.end_long(process), 0)

    def test_checkpoint_that_finds_the_disk_full(self):
        ckpt = self.mount.path / "ckpt"
        first = self.job.run("--ckpt", ckpt, steps=1)
        self.assert_status(first, 0)
        self.mount.fill(256 << 10)
        outcome = self.job.run("--ckpt", ckpt, "--resume", ckpt)
        self.assert_fails(outcome, harness.IO, ckpt)
        (self.mount.path / "ballast").unlink()
        rest = self.job.run("--resume", ckpt)
        self.assert_status(rest, 0)
        self.assertEqual(rest.events("done")[0]["losses"], self.job.losses)

    def test_save_that_finds_the_disk_full(self):
        self.mount.fill(64 << 10)
        outcome = self.job.run("--save", self.mount.path / "save", resume=True)
        self.assert_fails(outcome, harness.IO, "save")

    def test_folder_that_vanishes(self):
        """The swap file has no name; only the checkpoint folder can be missed."""
        gone = harness.folder("gone")
        process = self.start_long(gone, "--ckpt", gone / "ckpt")
        shutil.rmtree(gone)
        outcome = self.end_long(process)
        if outcome.status != 0:
            self.assertIn("gone", outcome.err)

    def test_unmounted_before_it_begins(self):
        lost = self.mount.path / "lost"
        lost.mkdir()
        subprocess.run(["umount", self.mount.path], check=True, capture_output=True, timeout=60)
        outcome = self.job.run(resume=True, nvme=lost)
        self.assert_fails(outcome, harness.IO, lost)
        subprocess.run(["mount", "-o", "loop", self.mount.image, self.mount.path], check=True,
                       capture_output=True, timeout=60)

    def test_unmounted_while_it_runs(self):
        """A lazy unmount takes the name away; the open file must go on to serve."""
        process = self.start_long(self.mount.path)
        subprocess.run(["umount", "-l", self.mount.path], check=True, capture_output=True,
                       timeout=60)
        self.end_long(process)
        subprocess.run(["mount", "-o", "loop", self.mount.image, self.mount.path], check=True,
                       capture_output=True, timeout=60)


if __name__ == "__main__":
    common.begin()
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        harness.skip("needs root and mkfs.ext4")
    try:
        Mount("probe").close()
    except (OSError, subprocess.SubprocessError) as error:
        harness.skip("no loop device here: %s" % error)
    harness.unittest.main(verbosity=2)
