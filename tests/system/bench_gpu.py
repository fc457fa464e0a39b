#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of a CUDA device over the fake driver, and the arithmetic of their figures.

Takes `fake`, the folder of the benchmarks' programs and that of their scripts after the scratch
folder.
"""

import pathlib
import re
import statistics
import subprocess
import sys
import unittest

import cuda_device
import harness

PROGRAMS = None
SCRIPTS = None
SMALL = ["--layers", "1", "--heads", "1", "--width", "64", "--vocab", "64", "--batch", "1", "--seq",
         "8"]

# A peer whose third step takes over 0.3 s, also where the end of the one before it is seen a little
# late, but for the first turn, which is not to count. It has room for 2 sequences.
PEER = """
import sys, time
if "--version" in sys.argv:
    print("peer 1")
    sys.exit()
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
if int(option("--batch")) > 2:
    sys.exit(3)
tokens = 3 * 8 * int(option("--batch")) + 1
assert len(open(option("--data"), "rb").read()) == 1024 + 2 * tokens
for number, _ in enumerate(sys.stdin):
    for step in range(int(option("--steps"))):
        time.sleep((0, 0, 0.32)[step] if number > 0 else 0)
        print("0.1 5.0", flush=True)
    print(flush=True)
"""


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), env=harness.environment(**environment),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=harness.TIMEOUT)


class Copies(harness.Case):

    def test_table(self):
        out = run(PROGRAMS / "bench_cuda_copy", 3, 16, **cuda_device.environment())
        self.assertEqual(out.returncode, 0, out.stderr)
        for way in ("device to host", "host to device", "both at once"):
            found = re.search("^" + way + r"((?: +\d+\.\d+){5})$", out.stdout, re.MULTILINE)
            self.assertTrue(found, out.stdout)
            ours, plain, ratio, least, most = map(float, found.group(1).split())
            self.assertGreater(min(ours, plain), 0)
            self.assertTrue(least <= ratio <= most, out.stdout)

    def test_without_a_device(self):
        out = run(PROGRAMS / "bench_cuda_copy", MEMRUN_CUDA_DRIVER="/nonexistent/libcuda.so.1")
        self.assertEqual(out.returncode, harness.SKIPPED)
        self.assertEqual(len(out.stderr.splitlines()), 1)


class Peer(harness.Case):

    def measure(self, *options):
        peer = harness.scratch / "peer.py"
        peer.write_text(PEER)
        return run(sys.executable, SCRIPTS / "gpu_peer.py", "--memrun", harness.memrun, "--python",
                   sys.executable, "--peer", peer, "--rounds", 2, "--steps", 3, "--shape",
                   "gpt2-f32", *SMALL[:-4], "--seq", 8, *options, **cuda_device.environment())

    def test_row(self):
        out = self.measure("--batch", 1)
        self.assertEqual(out.returncode, 0, out.stderr)
        name, batch, ours, theirs, ratio = out.stdout.splitlines()[-1].split()[:5]
        self.assertEqual((name, batch), ("gpt2-f32", "1"))
        self.assertTrue(300 <= float(theirs) < 3000, out.stdout)
        self.assertGreater(min(float(ours), float(ratio)), 0)
        for words in ("# device: Fake GPU, 1.0 GiB", "# peer 1", "# warning: "):
            self.assertIn(words, out.stdout)

    def test_largest_batch_that_fits(self):
        out = self.measure()
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertEqual(out.stdout.splitlines()[-1].split()[:2], ["gpt2-f32", "2"])
        self.assertIn("# gpt2-f32: a batch of 2, for one of 4 does not fit: PyTorch ran out",
                      out.stdout)

    def test_batch_that_does_not_fit(self):
        for batch, width, who in ((4, 64, "PyTorch"), (8192, 1024, "memrun")):
            out = self.measure("--batch", batch, "--width", width, "--heads", width // 64)
            self.assertEqual(out.returncode, harness.DOES_NOT_FIT, out.stderr)
            self.assertRegex(out.stderr.splitlines()[-1], r"batch of %d does not fit .*%s.*; give a"
                             % (batch, who))

    def test_without_a_device(self):
        out = run(sys.executable, SCRIPTS / "gpu_peer.py", "--memrun", harness.memrun,
                  MEMRUN_CUDA_DRIVER="/nonexistent/libcuda.so.1")
        self.assertEqual(out.returncode, harness.SKIPPED)
        self.assertEqual(len(out.stderr.splitlines()), 1)

    def test_versions(self):
        sys.path.insert(0, str(SCRIPTS))
        import gpu_peer
        self.assertIsNone(gpu_peer.warning("PyTorch 2.11.0+cu130, CUDA 13.0 on NVIDIA H200"))
        for version in ("PyTorch 2.1.1", "PyTorch 2.12.11", "PyTorch 2.110.0"):
            self.assertIn("2.11", gpu_peer.warning(version))

    def test_median_of_pairs(self):
        sys.path.insert(0, str(SCRIPTS))
        import gpu_peer
        shape = dict(layers=1, width=4, heads=1, vocab=8, batch=2, seq=4)
        cells = gpu_peer.row("x", shape, [1, 2, 4], [3, 3, 3]).split()
        self.assertEqual(cells[:5], ["x", "2", "2000.00", "3000.00", "1.500"])
        self.assertEqual(float(cells[5]), 4)
        # 6 flops for each of 8 rows and 12 * 16 + 8 * 4 weights, and attention's triangle.
        self.assertEqual(gpu_peer.step_flops(shape), 6 * 8 * (192 + 32) + 3.5 * 2 * 8 * 4 * 4)

    def test_without_pytorch(self):
        out = run(sys.executable, SCRIPTS / "gpu_peer.py", "--memrun", harness.memrun, "--python",
                  "/bin/false", **cuda_device.environment())
        self.assertEqual(out.returncode, harness.SKIPPED)
        self.assertEqual(len(out.stderr.splitlines()), 1)


class Large(harness.Case):

    def measure(self, host, nvme):
        return run(sys.executable, SCRIPTS / "gpu_large.py", "--memrun", harness.memrun,
                   "--device-mem", cuda_device.in_use() + 20 * harness.MIB, "--host-mem", host,
                   "--nvme", nvme, "--steps", 3, "--", *SMALL, "--positions", "8",
                   **cuda_device.environment())

    def test_report(self):
        out = self.measure("4MiB", harness.folder("nvme"))
        self.assertEqual(out.returncode, 0, out.stderr)
        found = re.search(r"step +([\d.]+) s \(median of 2\), \d+ tokens/s", out.stdout)
        self.assertTrue(found, out.stdout)
        for words in ("# device: Fake GPU", "footprint ", "plan       needs device ",
                      " takes ", "peaks      device", "bound      ", "bound by   ", "nvme_write"):
            self.assertIn(words, out.stdout)

    def test_refused_before_it_is_run(self):
        out = run(sys.executable, SCRIPTS / "gpu_large.py", "--memrun", harness.memrun,
                  "--device-mem", cuda_device.in_use() + harness.MIB, "--host-mem", "1MiB",
                  "--nvme", "%s:1MiB" % harness.folder("nvme"), "--", *SMALL, "--width", "256",
                  "--layers", "4", "--positions", "8", **cuda_device.environment())
        self.assertEqual(out.returncode, harness.DOES_NOT_FIT, out.stderr)
        self.assertIn("memrun: does not fit", out.stderr)
        self.assertIn("gpu_large.py: the job does not fit", out.stderr)
        self.assertNotIn("step ", out.stderr)

    def test_ended_early(self):
        out = self.measure("4MiB", harness.scratch / "nowhere" / "nvme")
        self.assertNotEqual(out.returncode, 0, out.stdout)
        self.assertRegex(out.stderr.splitlines()[-1], "^gpu_large.py: memrun .*ended with status")

    def test_summary(self):
        sys.path.insert(0, str(SCRIPTS))
        import gpu_large
        step = {"event": "step", "tokens_per_second": 10.0, "seconds": 4.0, "bound_by": "compute",
                "predicted_seconds": 3.0, "compute_busy_seconds": 2.0, "peak_bytes": {},
                "host_busy_seconds": 0.5,
                "moved_bytes": dict.fromkeys(gpu_large.LINKS, 8),
                "link_busy_seconds": dict.fromkeys(gpu_large.LINKS, 2.0)}
        steps = [{**step, "seconds": seconds} for seconds in (50.0, 2.0, 3.0, 4.0)]
        done = {"event": "done", "plan": {"bound_seconds": 1.5}}
        found = gpu_large.summarize([*steps, done])
        self.assertEqual((found["steps"], found["seconds"]), (3, statistics.median([2, 3, 4])))
        self.assertAlmostEqual(found["tokens_per_second"], 40 / 3)
        self.assertEqual(found["bound_seconds"], 1.5)
        self.assertEqual(found["links"]["nvme_read"], (8, 2.0))
        self.assertIsNone(gpu_large.summarize([done]))


if __name__ == "__main__":
    PROGRAMS, SCRIPTS = map(pathlib.Path, sys.argv[4:6])
    del sys.argv[4:6]
    sys.dont_write_bytecode = True
    cuda_device.begin()
    unittest.main(verbosity=2)
