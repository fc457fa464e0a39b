#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun --device cuda: the trainer's own kernels, a small budget, faults.

Takes `fake` or `real` after the scratch folder. Over the fake driver the kernels run on the
processor, a fiber for each thread of a block, so a step takes a second.
"""

import json
import subprocess
import time
import unittest

import cuda_device
import harness
from cuda_device import run

MODEL = ["--layers", "1", "--heads", "4", "--width", "256", "--vocab", "512", "--batch", "1",
         "--seq", "8", "--threads", "2"]
# Wide enough for updates of bf16 tensors on the host: below 1 MiB they stay on the device.
WIDE = ["--layers", "1", "--heads", "6", "--width", "384", "--vocab", "512", "--batch", "1",
        "--seq", "8", "--threads", "2"]
# How far what a device has in use may differ from one process to the next.
SLACK = 16 * harness.MIB


class Cuda(harness.Case):

    def tight(self, *job):
        """Options that leave the device the least it can do with, and the rest to files."""
        options = [*job, "--offload", "nvme", "--nvme", harness.scratch / "nvme",
                   "--host-mem", "64KiB"]
        return options + ["--device-mem", self.smallest(*options)]

    def smallest(self, *options):
        plan = run("plan", *MODEL, *options, "--device-mem", 65536)
        self.assert_status(plan, harness.DOES_NOT_FIT)
        smallest = plan.events("plan")[0]["smallest_device_bytes"]
        self.assertIn("--device-mem %d" % smallest, plan.err)
        return smallest + (SLACK if cuda_device.REAL else 0)

    def test_a_plan_counts_what_a_run_has(self):
        """The context and the kernels are loaded while a plan is made, as they are in a run."""
        job = [*MODEL, "--steps", "1", *self.tight()]
        planned = run("plan", *job).events("plan")[0]
        done = run("train", *job).events("done")[0]
        slack = SLACK if cuda_device.REAL else 0
        self.assertAlmostEqual(done["plan"]["need_bytes"]["device"],
                               planned["need_bytes"]["device"], delta=slack)
        self.assertGreater(planned["outside_bytes"], 0)
        self.assertGreater(done["peak_bytes"]["device"], planned["outside_bytes"])
        self.assertLessEqual(done["peak_bytes"]["device"], done["budget_bytes"]["device"] + slack)
        if not cuda_device.REAL:
            self.assertEqual(done["peak_bytes"]["device"], planned["need_bytes"]["device"])

    def test_libraries_fit_the_budget(self):
        """Each kernel and each algorithm of cuBLASLt takes memory when it is first used, and the
        device has the budget and no byte more."""
        if cuda_device.REAL:
            self.skipTest("the device has more memory")
        job = [*MODEL, "--steps", "2", "--offload", "nvme", "--nvme", harness.scratch / "nvme",
               "--host-mem", "64KiB"]
        lazy = {"MEMRUN_FAKE_LAZY": str(harness.MIB)}
        plan = run("plan", *job, "--device-mem", "1GiB", **lazy)
        self.assert_status(plan, 0)
        outside = plan.events("plan")[0]["outside_bytes"]
        self.assertGreater(outside, cuda_device.in_use() + 20 * harness.MIB)
        plan = run("plan", *job, "--device-mem", outside, **lazy)
        self.assert_status(plan, harness.DOES_NOT_FIT)
        smallest = plan.events("plan")[0]["smallest_device_bytes"]
        done = run("train", *job, "--device-mem", smallest, MEMRUN_FAKE_MEMORY=str(smallest),
                   **lazy)
        self.assert_status(done, 0)
        self.assertEqual(done.err, "")
        self.assertLessEqual(done.events("done")[0]["peak_bytes"]["device"], smallest)

    def losses(self, outcome):
        self.assert_status(outcome, 0)
        return [event["loss"] for event in outcome.events("step")]

    def test_losses_are_those_of_the_cpu(self):
        cuda = self.losses(run("train", *MODEL, "--steps", "2"))
        cpu = self.losses(harness.run("train", "--json", *MODEL, "--steps", "2", "--reference"))
        self.assertEqual(len(cuda), 2)
        for one, other in zip(cuda, cpu):
            self.assertAlmostEqual(one, other, delta=1e-4)

    def test_a_tight_budget_changes_no_bit(self):
        outcome = run("verify", *MODEL, "--steps", "2", *self.tight(), MEMRUN_FAKE_SEED="1")
        self.assert_status(outcome, 0)

    def test_a_trace_holds_each_op(self):
        """Of ops too that were over before anybody looked; first ops of a run are."""
        path = harness.scratch / "trace.json"
        self.assert_status(run("train", *MODEL, "--steps", "2", "--trace", path), 0)
        events = [event for event in json.loads(path.read_text())["traceEvents"]
                  if event["ph"] == "X"]
        self.assertGreater(len(events), 2 * 10)
        ends = {}
        for event in events:
            self.assertGreaterEqual(event["ts"], ends.get(event["tid"], 0) - 0.01)
            ends[event["tid"]] = event["ts"] + event["dur"]

    def test_a_killed_run_goes_on(self):
        """kill -9 after the second step; a checkpoint goes on to the same end."""
        train = ["train", *MODEL, "--steps", "4", "--ckpt-every", "1", "--ckpt"]
        whole = self.losses(run(*train, harness.folder("whole")))
        path = harness.folder("killed")
        process = cuda_device.start(*train, path, stdout=subprocess.PIPE)
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step" and event["step"] == 2:
                break
        process.kill()
        process.communicate()
        rest = self.losses(run(*train, path, "--resume", path))
        self.assertIn(len(rest), (1, 2, 3))
        self.assertEqual(rest, whole[-len(rest):])

    def updates_on_the_host(self, *job):
        """A profile of a slow device beside a fast host: the plan has updates there, and they
        change no bit. What the plan says."""
        path = harness.scratch / "profile.json"
        options = [*job, "--profile", path, "--offload", "host", "--host-mem", "256MiB"]
        used = cuda_device.in_use() + (SLACK if cuda_device.REAL else 0)
        plan = run("plan", *options, "--device-mem", used + 4096)
        self.assertIn(plan.status, (0, harness.DOES_NOT_FIT), str(plan))
        device = used + plan.events("plan")[0]["smallest_device_bytes"]
        profile = json.loads(path.read_text())
        profile.update(bytes_per_second=1e8, host_bytes_per_second=1e15)
        harness.write_profile(path, profile, per_flop=1e-8, per_byte=1e-8)
        options += ["--device-mem", device]
        plan = run("plan", *options)
        self.assert_status(plan, 0)
        outcome = run("verify", *options, "--steps", "3", MEMRUN_FAKE_SEED="2")
        self.assert_status(outcome, 0)
        return plan.events("plan")[0]

    def test_updates_on_the_host_change_no_bit(self):
        self.assertGreater(self.updates_on_the_host(*MODEL)["host_seconds"], 0)

    def test_updates_on_the_host_in_bf16(self):
        """The copies for the layers are written beside the masters, and they alone come back: of
        the two largest tensors, 1536 by 384 each."""
        plan = self.updates_on_the_host(*WIDE, "--dtype", "bf16")
        self.assertGreater(plan["host_seconds"], 0)
        self.assertGreaterEqual(plan["links"]["host_to_device"]["bytes"], 2 * 1536 * 384 * 2)
        self.assertLess(plan["links"]["host_to_device"]["bytes"], 2 * 1536 * 384 * 4)

    def test_copies_to_the_host_leave_early(self):
        """Links so slow that they bind the step, and a host too slow for updates: what these
        changed is copied while it is still read, also between evaluations."""
        path, kept = harness.scratch / "slow.json", harness.scratch / "early.plan"
        text = harness.scratch / "text"
        text.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
        job = ["--layers", 4, "--heads", 1, "--width", 256, "--vocab", 256, "--batch", 1,
               "--seq", 4, "--threads", 2, "--recompute", "none", "--data", text, "--profile",
               path, "--offload", "host", "--host-mem", "256MiB"]
        used = cuda_device.in_use() + (SLACK if cuda_device.REAL else 0)
        whole = run("plan", *job, "--device-mem", used + 4096).events("plan")[0]
        profile = json.loads(path.read_text())
        profile.update(device_to_host=4e6, host_to_device=4e6, host_bytes_per_second=1e6,
                       host_memory_bytes_per_second=1e6)
        harness.write_profile(path, profile)
        small = ["--device-mem", used + int(0.4 * whole["footprint_bytes"])]
        self.assert_status(run("plan", *job, *small, "--out", kept), 0)
        self.assertGreater(harness.count_early(kept, "device_to_host"), 0)
        job += ["--steps", 3, "--eval-data", text, "--eval-every", 1, "--eval-batches", 1]
        told = []
        for rest in ([], [*small, "--plan", kept]):
            outcome = run("train", *job, *rest, MEMRUN_FAKE_SEED="2")
            self.assert_status(outcome, 0)
            told.append([(event["event"], event["loss"]) for event in outcome.events()
                         if event["event"] in ("step", "eval")])
        self.assertEqual(told[0], told[1])
        self.assertEqual([event for event, _ in told[0]], ["step", "eval"] * 3)

    def test_layers_in_bf16(self):
        """Heads of 64 columns, on tensor cores; losses differ from those of fp32 by roundings."""
        bf16 = self.losses(run("train", *MODEL, "--dtype", "bf16", "--steps", "2"))
        fp32 = self.losses(run("train", *MODEL, "--steps", "2"))
        for one, other in zip(bf16, fp32):
            self.assertNotEqual(one, other)
            self.assertAlmostEqual(one, other, delta=2e-3)
        outcome = run("verify", *MODEL, "--steps", "2", *self.tight("--dtype", "bf16"),
                      MEMRUN_FAKE_SEED="2")
        self.assert_status(outcome, 0)

    def test_a_broken_device_leaves_the_checkpoint(self):
        """The device breaks in the third step; what was saved before goes on to the same end."""
        if cuda_device.REAL:
            self.skipTest("gpu/runtime_device breaks the device")
        train = ["train", *MODEL, "--steps", "3", "--ckpt-every", "1", "--ckpt"]
        whole = self.losses(run(*train, harness.folder("whole")))
        broken = run(*train, harness.folder("ckpt"), MEMRUN_FAKE_FAIL="device:%d:719" %
                     (self.items_of_two_steps() + 20))
        self.assert_status(broken, harness.IO)
        lines = broken.err.splitlines()
        self.assertRegex(lines[0], r"cuda: cu\w+ for (op|tensor) [a-z_0-9.]+, .*\d+ bytes.*: "
                         "CUDA_ERROR_LAUNCH_FAILED")
        self.assertRegex(lines[1], "device cuda: the fault is that of an op or a copy before: "
                         r"step 3 was at op [a-z_0-9.]+, \d+ bytes, first of \d+ that had not")
        self.assertEqual(len(lines), 2)
        self.assertEqual([event["loss"] for event in broken.events("step")], whole[:2])
        rest = run(*train, harness.scratch / "ckpt", "--resume", harness.scratch / "ckpt")
        self.assertEqual(self.losses(rest), whole[2:])

    def test_a_launch_that_fails_names_the_op(self):
        """In the second step: one line with the call, the op, its kernel and the sizes."""
        if cuda_device.REAL:
            self.skipTest("nothing makes the driver fail")
        first, second = (self.calls(steps)["cuLaunchKernel"] for steps in (1, 2))
        broken = run("train", *MODEL, "--steps", "2",
                     MEMRUN_FAKE_FAIL="cuLaunchKernel:%d:701" % ((first + second) // 2))
        self.assert_status(broken, harness.IO)
        self.assertRegex(broken.err, r"cuLaunchKernel for op [a-z_0-9.]+[.][a-z]+, kernel cuda_\w+"
                         r", \d+ x \d+ x \d+ blocks of \d+ x \d+ x \d+ threads")
        self.assertEqual(len(broken.err.splitlines()), 1)

    def test_the_library_of_products_is_no_younger_than_the_driver(self):
        """Of two versions that of the driver's."""
        if cuda_device.REAL:
            self.skipTest("the driver has a version of its own")
        fake = cuda_device.environment()["MEMRUN_CUBLASLT"]
        libraries = harness.folder("libraries")
        for library in ("12", "13"):
            (libraries / ("libcublasLt.so." + library)).symlink_to(fake)
        for version, chosen in (("12080", "12"), ("13000", "13")):
            outcome = run("train", *MODEL, "--steps", "1", "-vv", MEMRUN_FAKE_VERSION=version,
                          MEMRUN_CUBLASLT="", LD_LIBRARY_PATH=libraries)
            self.assert_status(outcome, 0)
            self.assertIn("cuBLASLt: libcublasLt.so." + chosen, outcome.err)

    def test_a_kernel_that_hangs_leaves_the_checkpoint(self):
        """A kernel of the third step never ends: the process does, and is resumed."""
        if cuda_device.REAL:
            self.skipTest("nothing makes the device hang")
        train = ["train", *MODEL, "--steps", "3", "--ckpt-every", "1", "--ckpt"]
        whole = self.losses(run(*train, harness.folder("whole")))
        start = time.monotonic()
        hung = run(*train, harness.folder("ckpt"), "--io-timeout", "2",
                   MEMRUN_FAKE_FAIL="device:%d:hang" % (self.items_of_two_steps() + 20))
        self.assertLess(time.monotonic() - start, 60)
        self.assert_status(hung, harness.IO)
        self.assertRegex(hung.err, r"device cuda hangs: .* of step 3 .*\(time limit 5.0 s\)")
        self.assertEqual(len(hung.err.splitlines()), 1)
        self.assertEqual([event["loss"] for event in hung.events("step")], whole[:2])
        rest = run(*train, harness.scratch / "ckpt", "--resume", harness.scratch / "ckpt")
        self.assertEqual(self.losses(rest), whole[2:])

    def test_a_kernel_that_hangs_before_the_first_step(self):
        """In the rehearsal, where plan, train and verify are ended likewise."""
        if cuda_device.REAL:
            self.skipTest("nothing makes the device hang")
        for command in ("plan", "train", "verify"):
            hung = run(command, *MODEL, "--steps", "1", "--io-timeout", "0.1",
                       MEMRUN_FAKE_FAIL="device:10:hang")
            self.assert_status(hung, harness.IO)
            self.assertRegex(hung.err, r"the device hangs: op [a-z_0-9.]+, \d+ bytes, has not "
                             r"ended for .*\(time limit 2.1 s\)")
            self.assertEqual(len(hung.err.splitlines()), 1)

    def test_a_driver_that_fails_in_a_migration_leaves_the_checkpoint(self):
        """Another plan takes over before the third step, and a call of the driver fails."""
        if cuda_device.REAL:
            self.skipTest("nothing makes the driver fail")
        options = ["--offload", "host", "--host-mem", "256MiB", "--device-mem", "512MiB",
                   "--replan", "always"]
        train = ["train", *MODEL, *options, "--steps", "4", "--ckpt-every", "1", "--ckpt"]
        outcome = run(*train, harness.folder("whole"))
        whole = self.losses(outcome)
        self.assertEqual(outcome.events("done")[0]["forecast"]["replan_step"], 3)
        before, end = (self.calls(steps, *options) for steps in (2, 3))
        for name, result in (("cuMemCreate", 2), ("cuMemSetAccess", 719),
                             ("cuMemMap", 2), ("cuMemcpyDtoHAsync_v2", 719)):
            self.assertGreater(end[name], before[name])
            fault = "%s:%d:%d" % (name, (before[name] + 1 + end[name]) // 2, result)
            path = harness.folder("ckpt")
            broken = run(*train, path, MEMRUN_FAKE_FAIL=fault)
            with self.subTest(fault=fault):
                if broken.status == 0:
                    self.assertEqual(self.losses(broken), whole)
                    continue
                self.assertIn(broken.status, (harness.DOES_NOT_FIT, harness.IO), str(broken))
                self.assertIn("CUDA_ERROR_", broken.err)
                seen = [event["loss"] for event in broken.events("step")]
                self.assertEqual(seen, whole[:len(seen)])
                rest = self.losses(run(*train, path, "--resume", path))
                self.assertGreater(len(rest), 0)
                self.assertEqual(rest, whole[-len(rest):])

    def test_memory_that_others_take_later(self):
        """In the third step. Where a smaller plan fits, the run goes on with it, else it ends with
        what would do, and its checkpoint goes on."""
        if cuda_device.REAL:
            self.skipTest("nobody takes memory of the device")
        # Updates on the host would leave the device with the least in any case.
        options = ["--offload", "nvme", "--nvme", harness.scratch / "nvme", "--host-mem", "64KiB"]
        train = ["train", *MODEL, *options, "--steps", "4", "--ckpt-every", "1", "--ckpt"]
        smallest = self.smallest(*options)
        whole = self.losses(run(*train, harness.folder("whole")))
        taken = 20 * harness.MIB
        late = self.late(taken, *options, "--device-mem", smallest + taken)
        outcome = run(*train, harness.folder("room"), "--device-mem", smallest + taken, **late)
        self.assertEqual(self.losses(outcome), whole)
        self.assertRegex(outcome.err, r"after step 3 its context.*: a plan for the rest takes over")
        self.assertEqual(outcome.events("done")[0]["forecast"]["replan_step"], 4)
        path = harness.folder("no_room")
        late = self.late(taken, *options, "--device-mem", smallest)
        outcome = run(*train, path, "--device-mem", smallest, **late)
        self.assert_status(outcome, harness.DOES_NOT_FIT)
        self.assertIn("--device-mem %d " % (smallest + taken), outcome.err)
        self.assertEqual(len(outcome.err.splitlines()), 1)
        self.assertEqual([event["loss"] for event in outcome.events("step")], whole[:3])
        rest = run(*train, path, "--resume", path, "--device-mem", smallest + taken)
        self.assertEqual(self.losses(rest), whole[3:])

    def late(self, taken, *options):
        """Somebody who takes memory in the middle of the third step: plans of other rates launch
        a little more or less."""
        two, three = (self.calls(steps, *options)["cuLaunchKernel"] for steps in (2, 3))
        return {"MEMRUN_FAKE_LATE": "%d:%d" % ((two + three) // 2, taken)}

    def items_of_two_steps(self):
        """What the streams carry out in a run of two steps with their checkpoints."""
        return self.calls(2)["device"]

    def calls(self, steps, *options):
        """How often a run of some steps with their checkpoints calls each function of the driver,
        and what the streams carry out."""
        report = harness.folder("report") / "calls"
        outcome = run("train", *MODEL, *options, "--steps", steps, "--ckpt-every", "1", "--ckpt",
                      harness.folder("counted"), MEMRUN_FAKE_REPORT=report)
        self.assert_status(outcome, 0)
        lines = report.read_text().splitlines()
        self.assertFalse([line for line in lines if line.startswith("live")])
        return {line.split()[1]: int(line.split()[2]) for line in lines}


if __name__ == "__main__":
    cuda_device.begin()
    unittest.main(verbosity=2)
