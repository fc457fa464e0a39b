#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 at random moments, also within checkpoints: the run goes on to the same end.

Each chain is one job that is killed several times and each time resumed. Every step line of every
life must be that of a run which was never killed, and the saved weights at the end too. Every other
chain plans anew every second step, which takes most of its time; in the others most moments are
those of steps and checkpoints.
"""

import json
import random
import subprocess
import time

import common
from common import harness

CHAINS = {"cpu": 10, "cuda": 4}
KILLS = 5  # of each chain
STEPS = {"cpu": 24, "cuda": 12}


class Kill(harness.Case):

    def arguments(self, path, resume, replan):
        found = ["train", "--json", *common.MODEL, "--steps", STEPS[common.DEVICE], "--offload",
                 "nvme", "--nvme", harness.scratch / "nvme", "--device-mem", self.device,
                 "--host-mem", "0", "--replan", replan, "--defer", "always", "--ckpt",
                 path / "ckpt", "--ckpt-every", "2", "--save", path / "save"]
        return found + (["--resume", path / "ckpt"] if resume else [])

    def resumes(self, path):
        """Whether a checkpoint was finished; a name with .tmp is one that was not."""
        ckpt = path / "ckpt"
        return ckpt.exists() and any(each.suffix == "" for each in ckpt.iterdir())

    def check_lines(self, out):
        """Whole lines only: the last may be cut off."""
        lines = out.split("\n")[:-1]
        steps = [json.loads(line) for line in lines]
        for event in steps:
            if event["event"] == "step":
                self.assertEqual((event["loss"], event["grad_norm"]),
                                 self.expected[event["step"]], event["step"])
        return len([event for event in steps if event["event"] == "step"])

    def live(self, path, replan, seconds):
        """One life, killed after so many seconds unless it ends before. True: killed."""
        process = common.start(self.arguments(path, self.resumes(path), replan),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=seconds)
            killed = False
            self.assertEqual(process.returncode, 0, err)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            killed = True
        self.steps_seen += self.check_lines(out)
        return killed

    def test_kill(self):
        source = random.Random(harness.seed())
        self.device = common.device_bytes(0.25)
        duration = {}
        ends = []
        for replan in ("always", "never"):
            path = harness.folder("whole")
            began = time.monotonic()
            whole = common.run(*self.arguments(path, False, replan), "--defer", "never")
            duration[replan] = time.monotonic() - began
            self.assert_status(whole, 0)
            self.assertGreater(whole.events("done")[0]["plan"]["moved_bytes"]["nvme_write"], 0)
            ends.append(({event["step"]: (event["loss"], event["grad_norm"])
                          for event in whole.events("step")},
                         (path / "save/model.safetensors").read_bytes()))
        self.assertEqual(ends[0], ends[1])
        self.expected, weights = ends[0]
        self.steps_seen = 0
        kills = 0
        chain = 0
        chains = CHAINS[common.DEVICE]
        while kills < chains * KILLS:
            chain += 1
            self.assertLess(chain, 10 * chains, "lives end before they are killed")
            path = harness.folder("chain")
            replan = ("always", "never")[chain % 2]
            for _ in range(KILLS):
                kills += self.live(path, replan, source.uniform(0.02, duration[replan] * 0.7))
            rest = common.run(*self.arguments(path, self.resumes(path), replan))
            self.assert_status(rest, 0)
            self.check_lines(rest.out)
            self.assertEqual((path / "save/model.safetensors").read_bytes(), weights)
            left = [each.name for each in (path / "ckpt").iterdir() if "tmp" in each.name]
            self.assertEqual(left, [], "what a killed checkpoint left is still there")
        print("%d kills, %d steps seen before them, whole runs take %.1f and %.1f s" % (
            kills, self.steps_seen, duration["always"], duration["never"]), flush=True)


if __name__ == "__main__":
    common.main()
