#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan, info, bench, and the two commands that the README opens with."""

import harness
from harness import TINY

PLAN_KEYS = ["event", "fits", "footprint_bytes", "budget_bytes", "need_bytes",
             "smallest_device_bytes", "largest_op", "largest_op_bytes", "predicted_seconds"]


class Plan(harness.Case):

    def test_json(self):
        outcome = harness.run("plan", "--json", "--check", *TINY, *harness.nvme())
        self.assert_status(outcome, 0)
        self.assertEqual(len(outcome.out.splitlines()), 1)
        event = outcome.events("plan")[0]
        self.assert_keys(event, PLAN_KEYS)
        self.assertTrue(event["fits"])
        self.assertGreaterEqual(event["predicted_seconds"], event["bound_seconds"] * 0.999)
        for tier in harness.TIER_KEYS:
            self.assertLessEqual(event["need_bytes"][tier], event["budget_bytes"][tier])
        sizes = [tensor["bytes"] for tensor in event["largest_tensors"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertEqual(event["model"]["layers"], 2)

    def test_text(self):
        outcome = harness.run("plan", "--check", *TINY, *harness.nvme())
        self.assert_status(outcome, 0)
        for word in ("verdict    fits", "footprint", "forecast", "device", "largest tensors",
                     "checked"):
            self.assertIn(word, outcome.out)

    def test_smallest_budget_is_enough_and_less_is_not(self):
        _, smallest = harness.budgets(TINY)
        rest = ["--host-mem", "0", "--check", *TINY, *harness.nvme()]
        self.assert_status(harness.run("plan", *rest, "--device-mem", smallest), 0)
        self.assert_status(harness.run("train", *rest, "--device-mem", smallest), 0)
        less = harness.run("plan", *rest, "--device-mem", max(65536, smallest - 8192))
        self.assert_fails(less, harness.DOES_NOT_FIT, "--device-mem", smallest)
        self.assertIn("does not fit", less.out)

    def test_nothing_is_written(self):
        path = harness.folder("planned")
        self.assert_status(harness.run("plan", *TINY, "--save", path / "save", "--ckpt",
                                       path / "ckpt"), 0)
        self.assertEqual(list(path.iterdir()), [])


class Info(harness.Case):

    def test_json(self):
        outcome = harness.run("info", "--json")
        self.assert_status(outcome, 0)
        event = outcome.events("info")[0]
        devices = {device["name"]: device for device in event["devices"]}
        self.assertTrue(devices["cpu"]["available"])
        self.assertEqual(devices["cuda"]["reason"], "not built in")
        for link in harness.LINK_KEYS:
            self.assertGreater(event["machine"]["links_bytes_per_second"][link], 0)

    def test_text(self):
        outcome = harness.run("info")
        self.assert_status(outcome, 0)
        for word in ("cpu", "cuda", "not built in", "nvme_read", "GB/s"):
            self.assertIn(word, outcome.out)

    def test_profile_that_is_garbage_is_replaced(self):
        path = harness.scratch / "profile.json"
        path.write_text("{nonsense")
        outcome = harness.run("info", "--json", "--profile", path)
        self.assert_status(outcome, 0)
        self.assertEqual(len(outcome.errors()), 1)
        self.assertEqual(harness.run("info", "--json", "--profile", path).err, "")


class Bench(harness.Case):

    def test_machine(self):
        outcome = harness.run("bench", "--json", "--rounds", "2")
        self.assert_status(outcome, 0)
        self.assertEqual([event["case"] for event in outcome.events("bench")],
                         ["memory copy", "memory add in place", "machine"])

    def test_offload(self):
        outcome = harness.run("bench", "offload", "--json", "--rounds", "2", *TINY, "--layers", "6",
                              "--width", "128", *harness.nvme())
        self.assert_status(outcome, 0)
        event = outcome.events("bench")[0]
        self.assertLess(event["memory_budget_bytes"], event["footprint_bytes"] * 0.3)
        self.assertGreater(event["ratio"], 0)


class Promise(harness.Case):
    """The default job is several times larger than its budgets, and stays within them."""

    def test_train(self):
        outcome = harness.run("--offload", "nvme", "train", "--json", "--steps", "3")
        self.assert_status(outcome, 0)
        done = outcome.events("done")[0]
        memory = done["budget_bytes"]["device"] + done["budget_bytes"]["host"]
        self.assertGreaterEqual(done["footprint_bytes"], 4 * memory)
        if not harness.SANITIZED:
            self.assertLessEqual(done["peak_bytes"]["resident"], memory + harness.OVERHEAD)
        for tier in harness.TIER_KEYS:
            self.assertLessEqual(done["peak_bytes"][tier], done["budget_bytes"][tier])

    def test_verify(self):
        self.assert_status(harness.run("--offload", "nvme", "verify", "--steps", "2"), 0)


if __name__ == "__main__":
    harness.main()
