#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""File systems that are full, too small, or gone, on a small loop device. Needs root."""

import os
import shutil
import subprocess
import threading
import time

import common
from common import harness

IMAGE_MIB = 128


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

    def setUp(self):
        self.mount = Mount("disk")
        self.job = common.Job("auto")

    def tearDown(self):
        self.mount.close()

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
        process = harness.start(
            ["train", "--json", *self.job.model, "--steps", "200", "--device-mem", self.job.device,
             "--host-mem", "0", "--offload", "nvme", "--nvme", self.mount.path],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        try:
            self.mount.fill(0)
        except OSError:
            pass
        out, err = process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(len(harness.Outcome([], 0, out, err).events("step")) + 1, 200)

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
        process = harness.start(
            ["train", "--json", *self.job.model, "--steps", "200", "--device-mem", self.job.device,
             "--host-mem", "0", "--offload", "nvme", "--nvme", gone, "--ckpt", gone / "ckpt"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        shutil.rmtree(gone)
        _, err = process.communicate(timeout=harness.TIMEOUT)
        self.assertIn(process.returncode, (0, harness.IO), err)
        if process.returncode != 0:
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn("gone", err)

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
        outcome = []
        thread = threading.Thread(target=lambda: outcome.append(
            self.job.run(steps=200, nvme=self.mount.path)))
        thread.start()
        time.sleep(0.5)
        subprocess.run(["umount", "-l", self.mount.path], capture_output=True, timeout=60)
        thread.join()
        self.assertIn(outcome[0].status, (0, harness.IO), str(outcome[0]))
        subprocess.run(["mount", "-o", "loop", self.mount.image, self.mount.path], check=True,
                       capture_output=True, timeout=60)


if __name__ == "__main__":
    harness.begin()
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        harness.skip("needs root and mkfs.ext4")
    try:
        Mount("probe").close()
    except (OSError, subprocess.SubprocessError) as error:
        harness.skip("no loop device here: %s" % error)
    harness.unittest.main(verbosity=2)
