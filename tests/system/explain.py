#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan --explain: what it says, and that its answers are those of plans."""

import pathlib
import re

import harness
from harness import TINY


class Explained(harness.Case):
    """plan --explain: one screen, and the same numbers in JSON."""

    SCREEN = (50, 100)  # lines, columns

    def check_screen(self, outcome, status):
        self.assert_status(outcome, status)
        lines = outcome.out.splitlines()
        self.assertLessEqual(len(lines), self.SCREEN[0], outcome.out)
        for line in lines:
            self.assertLessEqual(len(line), self.SCREEN[1], line)
            self.assertEqual(line, line.rstrip())

    def test_screens(self):
        example = pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile"
        tight = ["--device-mem", "512KiB", "--host-mem", "128KiB"]
        for rest in (harness.nvme(), [*tight, *harness.nvme()], [*tight, "--offload", "none"],
                     [*tight, "--recompute", "full", *harness.nvme()], ["--profile", example]):
            outcome = harness.run("plan", "--explain", *TINY, *rest)
            self.check_screen(outcome, harness.DOES_NOT_FIT if "none" in rest else 0)
            for word in ("verdict", "one more GiB of", "smallest device budget"):
                self.assertIn(word, outcome.out)

    def test_a_long_path_is_cut_in_its_middle(self):
        source = pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile"
        path = harness.folder("deep") / ("long" * 30) / "node.profile"
        path.parent.mkdir()
        path.write_bytes(source.read_bytes())
        job = ["plan", *TINY, "--profile", path]
        outcome = harness.run(*job, "--explain")
        self.check_screen(outcome, 0)
        self.assertRegex(outcome.out, r"\nmachine    .+, described by .*~\w*/node\.profile\n")
        self.assertIn(str(path), harness.run(*job).out)
        self.assertEqual(harness.run(*job, "--explain", "--json").events("plan")[0]["profile"],
                         str(path))

    def test_ops_on_the_host(self):
        """Here the device is the processor: nothing runs beside it."""
        outcome = harness.run("plan", "--explain", *TINY, "--device-mem", "512KiB", "--host-mem",
                              "1MiB", *harness.nvme())
        self.check_screen(outcome, 0)
        self.assertRegex(outcome.out, r"; [1-9]\d* ops use tensors on the host\n\n")
        self.assertNotIn("they run there in", outcome.out)

    def test_wide_names_and_many_layers(self):
        example = pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile"
        outcome = harness.run("plan", "--explain", "--profile", example, "--preset", "gpt2",
                              "--device-mem", "700MiB", "--host-mem", "1GiB", "--batch", "1",
                              "--seq", "128", "--recompute", "none")
        self.check_screen(outcome, 0)
        # a name that is cut in its middle, of several tensors alike
        self.assertRegex(outcome.out, r"\n\w+ +[\w.]+~[\w.]+\.\* +\d+ ")
        for phase in ("forward", "backward", "update"):
            self.assertRegex(outcome.out, r"\n%s +\d" % phase)

    def test_json_has_the_same(self):
        job = [*TINY, "--device-mem", "1MiB", "--host-mem", "128KiB", *harness.nvme()]
        event = harness.run("plan", "--json", "--explain", *job).events("plan")[0]
        explained = event["explain"]
        for tier in harness.TIER_KEYS:
            held = explained["tiers"][tier]
            self.assertEqual(held["need_bytes"], event["need_bytes"][tier])
            self.assertEqual(sum(held["holds"].values()), event["need_bytes"][tier])
        self.assertEqual([phase["phase"] for phase in explained["phases"]],
                         ["forward", "backward", "update"])
        self.assertAlmostEqual(sum(phase["seconds"] for phase in explained["phases"]),
                               event["predicted_seconds"], places=9)
        self.assertEqual(explained["nvme_written_bytes_a_step"],
                         event["links"]["nvme_write"]["bytes"])
        self.assertLessEqual(len(explained["decisions"]), 10)
        self.assertEqual(list(explained["twice_as_fast"]), harness.LINK_KEYS)
        for gain in (*explained["one_more_gib"].values(), *explained["twice_as_fast"].values()):
            self.assertGreaterEqual(gain["gain_seconds"], 0)
        smallest = explained["smallest_device_bytes"]
        rest = ["--host-mem", "128KiB", *harness.nvme()]
        shown = re.search(r"\nsmallest device budget (\S+) (\S+): --device-mem %d\n" % smallest,
                          harness.run("plan", "--explain", *job).out)
        for enough in (smallest, shown[1] + shown[2]):
            self.assert_status(harness.run("plan", *TINY, *rest, "--device-mem", enough), 0)

    def test_gains_are_those_of_plans(self):
        """What one would gain by a change is what planning with it gives."""
        example = pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile"
        job = ["--preset", "gpt2", "--batch", "1", "--seq", "128", "--dtype", "bf16"]

        def planned(profile, mebibytes, *rest):
            return harness.run("plan", "--json", "--profile", profile, *job, "--device-mem",
                               "%dMiB" % mebibytes, *rest).events("plan")[0]

        now = planned(example, 500, "--explain")
        self.assertGreater(now["links"]["device_to_host"]["bytes"], 0)
        faster = harness.scratch / "faster.profile"
        faster.write_text(re.sub(r"(device_to_host *= )52 GB/s", r"\g<1>104 GB/s",
                                 example.read_text()))
        gains = now["explain"]
        for told, plan in ((gains["twice_as_fast"]["device_to_host"], planned(faster, 500)),
                           (gains["one_more_gib"]["device"], planned(example, 1524))):
            best = min(now["predicted_seconds"], plan["predicted_seconds"])
            self.assertAlmostEqual(told["predicted_seconds"], best, delta=1e-9)

    def test_what_nothing_uses_yet_may_gain_too(self):
        """A host without room, a link that carries nothing and a drive without a budget."""
        example = (pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile").read_text()

        def described(name, **lines):
            text = example
            for key, value in lines.items():
                text = re.sub(r"(?m)^(# )?%s .*" % key, "%s = %s" % (key, value), text)
            path = harness.scratch / name
            path.write_text(text)
            return path

        def planned(profile, *job):
            return harness.run("plan", "--json", "--profile", profile, *job).events("plan")[0]

        def gains(kind, what, profile, *job):
            return planned(profile, *job, "--explain")["explain"][kind][what]

        wide = ["--layers", "2", "--width", "512", "--offload", "host", "--device-mem", "4GiB"]
        slow = {"host_memory_bandwidth": "200 GB/s", "memory_bandwidth": "0.3 TB/s",
                "device_to_host": "8 GB/s, 12 us", "host_to_device": "8 GB/s, 12 us"}
        alone = described("alone.profile", **slow)
        fast = described("fast.profile", **{**slow, "device_to_host": "52 GB/s, 12 us",
                                            "host_to_device": "54 GB/s, 12 us"})
        faster = described("twice.profile", **{**slow, "host_to_device": "16 GB/s, 12 us"})
        drive = described("drive.profile", nvme="1 GiB")
        small = ["--layers", "2", "--width", "256", "--vocab", "512", "--batch", "2", "--seq", "64",
                 "--device-mem", "12MiB", "--host-mem", "4MiB"]
        room = (*wide, "--host-mem", "4GiB")
        for told, now, then in (
                (gains("one_more_gib", "host", fast, *wide, "--host-mem", "0"),
                 planned(fast, *wide, "--host-mem", "0"),
                 planned(fast, *wide, "--host-mem", "1GiB")),
                (gains("twice_as_fast", "host_to_device", alone, *room), planned(alone, *room),
                 planned(faster, *room)),
                (gains("one_more_gib", "nvme", drive, *small, "--offload", "host"),
                 planned(drive, *small, "--offload", "host"),
                 planned(drive, *small, "--offload", "nvme"))):
            self.assertTrue(told["fits"] and then["fits"])
            self.assertLess(then["predicted_seconds"], now["predicted_seconds"] or 1)
            self.assertAlmostEqual(told["predicted_seconds"], then["predicted_seconds"], delta=1e-9)
        here = harness.run("plan", "--json", "--explain", *TINY, "--offload", "host").events("plan")
        self.assertIsNone(here[0]["explain"]["one_more_gib"]["nvme"])

    def test_of_a_kept_plan(self):
        path = harness.scratch / "explained.plan"
        job = [*TINY, "--device-mem", "1MiB", "--host-mem", "128KiB", "--offload", "nvme", "--nvme",
               "%s:64MiB" % (harness.scratch / "nvme")]
        fresh = harness.run("plan", "--explain", *job, "--out", path)
        self.check_screen(fresh, 0)
        kept = harness.run("plan", "--explain", *job, "--plan", path)
        self.assertEqual(kept.out, fresh.out)


if __name__ == "__main__":
    harness.main()
