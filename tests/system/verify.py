#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun verify over random models, batches, budgets, offload and recompute modes.

Takes the I/O engine after the scratch folder; its draws follow from the printed seed.
"""

import json
import random
import sys

import harness

DRAWS = 30


def draw_model(random_source, bf16):
    heads = random_source.choice([1, 2, 3, 4])
    return ["--layers", random_source.randint(1, 4), "--heads", heads, "--width",
            heads * random_source.choice([8, 16, 24, 32]), "--vocab",
            random_source.choice([64, 256, 1000]), "--batch", random_source.randint(1, 4), "--seq",
            random_source.choice([8, 17, 32, 64]), "--steps", random_source.randint(1, 4),
            "--seed", random_source.randrange(1 << 32), "--threads",
            random_source.choice([1, 2]), "--grad-accum", random_source.choice([1, 1, 1, 2, 3]),
            "--clip", random_source.choice(["0", "0.5", "1"]), "--recompute",
            random_source.choice(["auto", "none", "full"]), "--replan",
            random_source.choice(["auto", "always"]), "--defer",
            random_source.choice(["auto", "always"]),
            *random_source.choice([["--dtype", "f32"], bf16])]


def draw_budget(random_source, model, engine):
    """Between the smallest budget that will do and the footprint; often close to the smallest."""
    offload = random_source.choice(["nvme", "nvme", "nvme", "host", "auto"])
    more = ["--offload", offload, "--io-engine", engine]
    if offload != "host":
        more += ["--nvme", str(harness.scratch / "nvme")]
    if random_source.random() < 0.25:
        more += ["--nvme", str(harness.folder("second")) + ":64MiB"] if offload != "host" else []
    host = 0 if offload != "host" and random_source.random() < 0.3 else (
        64 * harness.MIB if offload == "host" else random_source.randint(64 << 10, 2 << 20))
    plan = harness.run("plan", "--json", *model, *more, "--device-mem", "64KiB", "--host-mem", host)
    if plan.status not in (0, harness.DOES_NOT_FIT):
        raise AssertionError(str(plan))
    event = plan.events("plan")[0]
    smallest, footprint = event["smallest_device_bytes"] or 0, event["footprint_bytes"]
    part = random_source.random() ** 2 if random_source.random() < 0.8 else 0
    device = max(65536, int(smallest + part * max(0, footprint - smallest)))
    return more + ["--device-mem", device, "--host-mem", host]


class Verify(harness.Case):

    def test_random_jobs(self):
        random_source = random.Random(harness.seed() ^ hash_of(ENGINE))
        bf16 = harness.bf16()
        for number in range(DRAWS):
            model = draw_model(random_source, bf16)
            arguments = model + draw_budget(random_source, model, ENGINE)
            with self.subTest(arguments=" ".join(map(str, arguments))):
                outcome = harness.run("verify", "--json", *arguments)
                print("%2d/%d %s: %s" % (number + 1, DRAWS, outcome.status,
                                         " ".join(map(str, arguments))), flush=True)
                self.assert_status(outcome, 0)
                event = outcome.events("verify")[0]
                self.assertTrue(event["equal"])
                self.assertEqual((event["different_losses"], event["different_tensors"]), (0, 0))
                self.assertGreater(event["bytes"], 0)
                work = ("moved_bytes", "recomputed_ops", "deferred_ops")
                self.assertEqual("nothing moves" in outcome.err, not any(map(event.get, work)))
                self.assertGreater(event["tensors"], 0)

    def test_writes_leave_early(self):
        """A drive so slow that it binds the step, and that does more of both than of either."""
        path, kept = harness.scratch / "slow.json", harness.scratch / "early.plan"
        job = ["--layers", 8, "--heads", 2, "--width", 192, "--vocab", 256, "--batch", 1, "--seq",
               8, "--io-engine", ENGINE, "--profile", path]
        footprint, _ = harness.budgets(job)
        profile = json.loads(path.read_text())
        for drive in profile["paths"]:
            drive.update(read=30e6, write=20e6, mixed=35e6, latency_seconds=1e-4,
                         op_seconds_per_byte=0)
        harness.write_profile(path, profile)
        job += ["--device-mem", footprint // 2, "--host-mem", 0, *harness.nvme()]
        self.assert_status(harness.run("plan", *job, "--out", kept), 0)
        self.assertGreater(harness.count_early(kept, "nvme_write"), 0)
        outcome = harness.run("verify", "--json", *job, "--steps", 3, "--replan", "never")
        self.assert_status(outcome, 0)
        self.assertTrue(outcome.events("verify")[0]["equal"])

    def test_table(self):
        outcome = harness.run("verify", *harness.TINY, *harness.nvme(), "--io-engine", ENGINE)
        self.assert_status(outcome, 0)
        self.assertIn("equal: both runs agree to the last bit", outcome.out)
        self.assertIn("nothing moves or is made again", outcome.err)
        self.assertEqual(list((harness.scratch / "tmp").iterdir()), [])

    def test_does_not_fit(self):
        outcome = harness.run("verify", *harness.TINY, *harness.nvme(), "--device-mem", "64KiB",
                              "--host-mem", "0", "--io-engine", ENGINE)
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "smallest device budget")

    def test_bits_that_flip_are_never_a_result(self):
        footprint, smallest = harness.budgets(harness.TINY)
        device = max(65536, smallest + (footprint - smallest) // 8)
        outcome = harness.run("verify", *harness.TINY, *harness.nvme(), "--device-mem", device,
                              "--host-mem", "0", "--io-engine", ENGINE,
                              env={"MEMRUN_INJECT": "read:flip:0"})
        self.assert_fails(outcome, harness.CORRUPT)


def hash_of(text):
    return sum(ord(letter) << (8 * place) for place, letter in enumerate(text)) & 0xffffffff


if __name__ == "__main__":
    ENGINE = sys.argv.pop(3) if len(sys.argv) > 3 else "auto"
    harness.main()
