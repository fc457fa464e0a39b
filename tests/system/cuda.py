#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun --device cuda over the fake driver: the trainer's own kernels, a small budget, faults.

The kernels run on the processor, a fiber for each thread of a block, so a step takes a second.
"""

import harness

MODEL = ["--layers", "1", "--heads", "4", "--width", "256", "--vocab", "512", "--batch", "1",
         "--seq", "8", "--threads", "2"]
IN_USE = 18 * harness.MIB  # of the fake device, by its context and the module


def environment(**more):
    fakes = harness.fake_driver.parent
    return {"MEMRUN_CUDA_DRIVER": fakes / "libcuda.so.1",
            "MEMRUN_CUBLASLT": fakes / "libcublasLt.so.13",
            "MEMRUN_CUDA_KERNELS": __file__,  # any image is one to the fake driver
            **more}


class Cuda(harness.Case):

    def run_cuda(self, command, *arguments, **more):
        return harness.run("--device", "cuda", command, "--json", *MODEL, *arguments,
                           env=environment(**more))

    def tight(self):
        """Options that leave the device the least it can do with, and the rest to files."""
        options = ["--offload", "nvme", "--nvme", harness.scratch / "nvme", "--host-mem", "64KiB"]
        plan = self.run_cuda("plan", *options, "--device-mem", IN_USE + 4096)
        self.assert_status(plan, harness.DOES_NOT_FIT)
        smallest = plan.events("plan")[0]["smallest_device_bytes"]
        return options + ["--device-mem", IN_USE + smallest]

    def losses(self, outcome):
        self.assert_status(outcome, 0)
        return [event["loss"] for event in outcome.events("step")]

    def test_losses_are_those_of_the_cpu(self):
        cuda = self.losses(self.run_cuda("train", "--steps", "2"))
        cpu = self.losses(harness.run("train", "--json", *MODEL, "--steps", "2"))
        self.assertEqual(len(cuda), 2)
        for one, other in zip(cuda, cpu):
            self.assertAlmostEqual(one, other, delta=1e-4)

    def test_a_tight_budget_changes_no_bit(self):
        outcome = self.run_cuda("verify", "--steps", "2", *self.tight(), MEMRUN_FAKE_SEED="1")
        self.assert_status(outcome, 0)

    def test_a_broken_device_leaves_the_checkpoint(self):
        """The device breaks in the third step; what was saved before goes on to the same end."""
        train = ["train", "--steps", "3", "--ckpt-every", "1", "--ckpt"]
        whole = self.losses(self.run_cuda(*train, harness.folder("whole")))
        broken = self.run_cuda(*train, harness.folder("ckpt"), MEMRUN_FAKE_FAIL="device:%d:719" %
                               (self.items_of_two_steps() + 20))
        self.assert_status(broken, harness.IO)
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", broken.err)
        self.assertEqual([event["loss"] for event in broken.events("step")], whole[:2])
        rest = self.run_cuda(*train, harness.scratch / "ckpt", "--resume",
                             harness.scratch / "ckpt")
        self.assertEqual(self.losses(rest), whole[2:])

    def items_of_two_steps(self):
        """What the streams carry out in a run of two steps with their checkpoints."""
        report = harness.folder("report") / "calls"
        outcome = self.run_cuda("train", "--steps", "2", "--ckpt-every", "1", "--ckpt",
                                harness.folder("two"), MEMRUN_FAKE_REPORT=report)
        self.assert_status(outcome, 0)
        lines = report.read_text().splitlines()
        self.assertFalse([line for line in lines if line.startswith("live")])
        return next(int(line.split()[2]) for line in lines if line.startswith("calls device "))


if __name__ == "__main__":
    harness.main()
