#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun train: its lines, what it keeps, what it refuses."""

import json
import os
import pathlib
import random
import struct
import tempfile

import harness
from harness import TINY, job


class Lines(harness.Case):

    def test_json(self):
        outcome = harness.run(*job(), *harness.nvme())
        self.assert_status(outcome, 0)
        self.assertEqual(outcome.err, "")
        events = outcome.events()
        self.assertEqual([event["event"] for event in events], ["step"] * 4 + ["done"])
        for number, event in enumerate(events[:-1], 1):
            self.assert_keys(event, harness.STEP_KEYS)
            self.assertEqual(event["step"], number)
            self.assert_keys(event["moved_bytes"], harness.LINK_KEYS, whole=True)
            self.assertGreater(event["seconds"], 0)
            self.assertIn(event["bound_by"], ["compute"] + harness.LINK_KEYS)
        done = events[-1]
        self.assert_keys(done, harness.DONE_KEYS)
        self.assertEqual(done["steps"], 4)
        self.assertEqual(done["losses"], [event["loss"] for event in events[:-1]])
        self.assert_keys(done["budget_bytes"], harness.TIER_KEYS, whole=True)
        self.assert_keys(done["peak_bytes"], harness.TIER_KEYS + ["resident"], whole=True)
        plan = done["plan"]
        self.assertGreaterEqual(plan["predicted_seconds"], 0.999 * plan["bound_seconds"])
        for tier in harness.TIER_KEYS:
            self.assertEqual(plan["need_bytes"][tier], done["peak_bytes"][tier], tier)
        self.assert_keys(plan["moved_bytes"], harness.LINK_KEYS, whole=True)
        self.assert_keys(plan["gap_bytes"], ["kept", "host", "nvme", "recomputed"], whole=True)
        forecast = done["forecast"]
        self.assertGreater(forecast["median_seconds"], 0)
        self.assertAlmostEqual(forecast["error"], forecast["predicted_seconds"] /
                               forecast["median_seconds"] - 1)
        self.assertTrue(outcome.out.startswith('{"event":"step","step":1,"loss":'))

    def test_losses_have_all_their_digits(self):
        line = harness.run(*job("--steps", "1")).out.splitlines()[0]
        loss = line.split('"loss":')[1].split(",")[0]
        self.assertGreaterEqual(len(loss.replace(".", "")), 15)
        self.assertEqual(json.loads(loss), float(loss))

    def test_loss_falls_towards_its_floor(self):
        losses = harness.run(*job("--steps", "60", "--lr", "0.003")).events("done")[0]["losses"]
        self.assertLess(losses[-1], losses[0] - 0.1)

    def test_text(self):
        outcome = harness.run("train", *TINY, *harness.nvme())
        self.assert_status(outcome, 0)
        lines = outcome.out.splitlines()
        self.assertEqual(len([line for line in lines if line.startswith("step ")
                              and " loss " in line]), 4)
        for word in ("footprint", "forecast", "Markov source", "done", "peak"):
            self.assertIn(word, outcome.out)
        self.assertNotIn("\033", outcome.out)

    def test_a_cached_file_system_is_told_once(self):
        mounts = pathlib.Path("/proc/mounts").read_text().splitlines()
        memory = {line.split()[1] for line in mounts if line.split()[2] == "tmpfs"}
        if "/dev/shm" not in memory:
            self.skipTest("needs a file system in memory at /dev/shm")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            for command in ("train", "plan"):  # one that only measures tells of it too
                outcome = harness.run(command, *TINY, "--device-mem", "1MiB", "--host-mem",
                                      "128KiB", "--offload", "nvme", "--nvme", folder,
                                      "--reprofile")
                self.assert_status(outcome, 0)
                self.assertEqual(outcome.err.count("no direct I/O"), 1, outcome)

    def test_same_losses_on_every_tier(self):
        footprint, smallest = harness.budgets(TINY)
        found = set()
        for more in (["--offload", "none"], harness.nvme() + ["--device-mem", str(smallest)],
                     ["--offload", "host", "--device-mem", str((smallest + footprint) // 2)]):
            done = harness.run(*job(*more)).events("done")[0]
            found.add(json.dumps(done["losses"]))
        self.assertEqual(len(found), 1)

    def test_trace(self):
        path = harness.scratch / "trace.json"
        self.assert_status(harness.run(*job("--trace", path)), 0)
        events = json.loads(path.read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        self.assertTrue(any(event.get("ph") == "X" for event in events))

    def test_trace_that_cannot_be_written(self):
        self.assert_fails(harness.run(*job("--trace", "/dev/full")), harness.IO, "/dev/full",
                          "No space left on device")

    def test_trace_over_plans(self):
        """Events before another plan have the names of the program that is gone with the old."""
        names = []
        for replan in ("never", "always"):
            path = harness.scratch / ("trace-" + replan)
            self.assert_status(harness.run(*job("--trace", path, "--steps", "8", "--defer",
                                                "always", "--recompute", "none", "--replan",
                                                replan, "--offload", "host", "--device-mem",
                                                harness.budgets(TINY)[1] * 2)), 0)
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
            names.append({event["name"] for event in events
                          if event["ph"] == "X" and event["tid"] == 1})
        self.assertEqual(names[1] - {"another plan"}, names[0])
        self.assertIn("another plan", names[1])

    def test_evaluation(self):
        text = harness.scratch / "text.txt"
        text.write_bytes(bytes(range(256)) * 40)
        outcome = harness.run(*job("--data", text, "--eval-data", text, "--eval-every", "2",
                                   "--eval-batches", "2"))
        self.assert_status(outcome, 0)
        self.assertEqual([event["step"] for event in outcome.events("eval")], [2, 4])
        plain = harness.run(*job("--data", text))
        self.assertEqual(plain.events("done")[0]["losses"], outcome.events("done")[0]["losses"])

    def test_evaluation_of_shuffled_data(self):
        """It is of the first windows of the file, whatever order training takes them in."""
        text = harness.scratch / "random.txt"
        text.write_bytes(random.Random(1).randbytes(10240))
        words = ["--data", text, "--eval-every", "2", "--eval-batches", "2", "--lr", "0"]
        losses = []
        for more in ([], ["--shuffle"]):
            outcome = harness.run(*job(*words, *more))
            self.assert_status(outcome, 0)
            losses.append((outcome.events("done")[0]["losses"],
                           [event["loss"] for event in outcome.events("eval")]))
        self.assertNotEqual(losses[0][0], losses[1][0])
        self.assertEqual(losses[0][1], losses[1][1])

    def test_data_is_named(self):
        text, tokens = harness.scratch / "named.txt", harness.scratch / "named.bin"
        text.write_bytes(bytes(range(256)) * 40)
        outcome = harness.run("train", *TINY, "--data", text)
        self.assert_status(outcome, 0)
        self.assertIn("data       %s: 10240 tokens, each a byte" % text, outcome.out)
        words = struct.pack("<256i", 20240520, 1, 5000, *[0] * 253)
        tokens.write_bytes(words + struct.pack("<5000H", *[i % 256 for i in range(5000)]))
        outcome = harness.run("train", *TINY, "--data", tokens)
        self.assert_status(outcome, 0)
        self.assertIn("data       %s: 5000 tokens, as llm.c wrote them" % tokens, outcome.out)
        evaluated = ["--eval-every", "4", "--eval-data"]
        self.assert_fails(harness.run(*job("--data", tokens, *evaluated, text)), harness.USAGE,
                          "is of bytes", "of GPT-2 tokens")
        outcome = harness.run("train", *TINY, "--data", tokens, *evaluated, tokens)
        self.assertIn("evaluated  %s: 5000 tokens, as llm.c wrote them" % tokens, outcome.out)
        tokens.write_bytes(struct.pack("<i", 20240801) + words[4:] + bytes(4096))
        self.assert_fails(harness.run(*job("--data", tokens)), harness.USAGE, tokens, "20240520")

    def test_options_that_mean_nothing_alone(self):
        for given, needed in ((["--ckpt-every", "1"], "--ckpt,"),
                              (["--eval-data", "x.txt"], "--eval-every,"),
                              (["--eval-batches", "2"], "--eval-every,"),
                              (["--min-lr", "1e-5"], "--decay-steps,")):
            self.assert_fails(harness.run(*job(*given)), harness.USAGE, given[0], needed)
        self.assert_fails(harness.run(*job("--lr", "0.1", "--min-lr", "0.2", "--decay-steps", "3")),
                          harness.USAGE, "--min-lr 0.2", "--lr 0.1")


class Kept(harness.Case):

    def test_save(self):
        path = harness.folder("save")
        self.assert_status(harness.run(*job("--save", path / "model")), 0)
        config = json.loads((path / "model/config.json").read_text())
        self.assertEqual((config["n_layer"], config["n_embd"]), (2, 64))
        weights = (path / "model/model.safetensors").read_bytes()
        length = struct.unpack("<Q", weights[:8])[0]
        header = json.loads(weights[8:8 + length])
        self.assertTrue(any(name.endswith("wte.weight") for name in header))
        again = harness.run(*job("--init", path / "model/model.safetensors", "--steps", "1"))
        self.assert_status(again, 0)

    def test_weights_of_another_model(self):
        """What a file has and the model would leave out is no small difference."""
        path = harness.folder("other") / "model"
        self.assert_status(harness.run(*job("--layers", "3", "--save", path)), 0)
        weights = path / "model.safetensors"
        words = ["--layers", "3", "--init", weights, "--steps", "1"]
        self.assert_fails(harness.run(*job("--init", weights)), harness.USAGE, "set --layers")
        self.assert_fails(harness.run(*job(*words, "--save", path)), harness.USAGE, "would replace")
        self.assert_fails(harness.run(*job(*words, "--heads", "4")), harness.USAGE, "set --heads")
        loss = harness.run(*job(*words)).events("done")[0]["losses"]
        data = weights.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header, tensors = json.loads(data[8:8 + length]), data[8 + length:]
        begin, end = header["transformer.wte.weight"]["data_offsets"]
        embedding = tensors[begin:end]
        for name, more, status in (
                ("lm_head.weight", embedding, 0),
                ("lm_head.weight", embedding[:-1] + b"?", harness.USAGE),
                ("transformer.h.0.attn.bias", embedding, 0),
                ("transformer.h.0.ln_3.weight", embedding, harness.USAGE)):
            text = json.dumps({**header, name: {
                **header["transformer.wte.weight"],
                "data_offsets": [len(tensors), len(tensors) + len(more)]}}).encode()
            weights.write_bytes(struct.pack("<Q", len(text)) + text + tensors + more)
            outcome = harness.run(*job(*words))
            if status == 0:
                self.assert_status(outcome, 0)
                self.assertEqual(outcome.events("done")[0]["losses"], loss)
            else:
                self.assert_fails(outcome, status, name)
        weights.write_bytes(data)
        config = path / "config.json"
        config.write_text(config.read_text().replace("gelu_new", "relu"))
        self.assert_fails(harness.run(*job(*words)), harness.USAGE, "relu")
        config.write_text("no JSON")
        self.assert_status(harness.run(*job(*words)), 0)

    def test_resume_is_bit_for_bit(self):
        path = harness.folder("resume")
        whole = harness.run(*job("--save", path / "whole"))
        half = harness.run(*job("--steps", "2", "--ckpt", path / "ckpt"))
        self.assertEqual([event["step"] for event in half.events("checkpoint")], [2])
        rest = harness.run(*job("--resume", path / "ckpt", "--save", path / "rest"),
                           *harness.nvme())
        self.assert_status(rest, 0)
        self.assertEqual([event["step"] for event in rest.events("step")], [3, 4])
        losses = whole.events("done")[0]["losses"]
        parts = [part.events("done")[0]["losses"] for part in (half, rest)]
        self.assertEqual(losses, parts[0] + parts[1])
        self.assertEqual((path / "whole/model.safetensors").read_bytes(),
                         (path / "rest/model.safetensors").read_bytes())
        self.assertNotIn("was written with", rest.err)

    def test_checkpoints_of_runs_do_not_mix(self):
        one, other = harness.folder("one"), harness.folder("other")
        self.assert_status(harness.run(*job("--ckpt", one)), 0)
        self.assert_status(harness.run(*job("--steps", "6", "--ckpt", other)), 0)
        outcome = harness.run(*job("--steps", "8", "--resume", one, "--ckpt", other))
        self.assert_fails(outcome, harness.USAGE, other, "holds a checkpoint of step 6 already")
        self.assertEqual([path.name for path in other.iterdir()], ["step-00000006"])
        fresh = harness.folder("fresh")
        for path in (one, fresh):  # its own directory, and an empty one
            outcome = harness.run(*job("--steps", "5", "--resume", one, "--ckpt", path))
            self.assert_status(outcome, 0)

    def test_a_checkpoint_by_another_name(self):
        path = harness.folder("named") / "step-2"
        self.assert_status(harness.run(*job("--ckpt", path)), 0)
        latest = harness.folder("links") / "latest"
        latest.symlink_to(path / "step-00000004")
        for name in (path, latest):
            outcome = harness.run(*job("--steps", "5", "--resume", name))
            self.assertEqual([event["step"] for event in outcome.events("step")], [5])

    def test_resume_with_other_data_is_refused(self):
        path, text = harness.folder("data"), harness.scratch / "data.txt"
        text.write_bytes(bytes(range(256)) * 10000)
        self.assert_status(harness.run(*job("--data", text, "--ckpt", path, "--steps", "2")), 0)
        words = job("--data", text, "--resume", path)
        self.assert_status(harness.run(*words), 0)
        text.write_bytes(bytes(range(255, -1, -1)) * 10000)
        self.assert_fails(harness.run(*words), harness.USAGE, "another file of as many tokens")

    def test_checkpoints_from_before_a_lost_loss_stay(self):
        path = harness.folder("lost")
        outcome = harness.run(*job("--lr", "10", "--weight-decay", "10", "--steps", "12", "--ckpt",
                                   path, "--ckpt-every", "1"))
        self.assert_status(outcome, 0)
        losses = [event["loss"] for event in outcome.events("step")]
        norms = [event["grad_norm"] for event in outcome.events("step")]
        first = next(i for i in range(12) if losses[i] is None or norms[i] is None) + 1
        kept = sorted(int(folder.name[5:]) for folder in path.iterdir())
        self.assertEqual(kept, [first - 2, first - 1, 11, 12])

    def test_resume_with_other_matrix_products_is_told(self):
        path = harness.folder("products")
        self.assert_status(harness.run(*job("--steps", "2", "--ckpt", path, "--reference")), 0)
        rest = harness.run(*job("--resume", path))
        self.assert_status(rest, 0)
        self.assertEqual(len(rest.errors()), 1, str(rest))
        self.assertIn("was written with matrix products by reference, this run has", rest.err)

    def test_corrupt_checkpoint_is_named_and_the_one_before_loads(self):
        path = harness.folder("corrupt")
        self.assert_status(harness.run(*job("--ckpt", path, "--ckpt-every", "2")), 0)
        newest = max((each for each in path.rglob("*") if each.is_file()
                      and each.stat().st_size > 65536),
                     key=lambda each: (str(each.parent), each.stat().st_size))
        with open(newest, "r+b") as file:
            file.seek(newest.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        refused = harness.run(*job("--resume", path))
        self.assert_fails(refused, harness.CORRUPT, newest.parent, "CRC32C", path / "step-00000002")
        rest = harness.run(*job("--resume", path / "step-00000002"))
        self.assert_status(rest, 0)
        self.assertEqual([event["step"] for event in rest.events("step")], [3, 4])
        for each in path.rglob("*.safetensors"):
            os.truncate(each, each.stat().st_size // 2)
        self.assert_fails(harness.run(*job("--resume", path)), harness.CORRUPT, path)


class Bf16(harness.Case):
    """Layers in bf16: the same training but for rounding, in less memory, on every tier."""

    def setUp(self):
        self.bf16 = harness.bf16()

    def losses(self, *more):
        outcome = harness.run(*job("--steps", "24", "--lr", "3e-3", *more))
        self.assert_status(outcome, 0)
        return outcome.events("done")[0]["losses"]

    def test_loss_falls_as_in_fp32(self):
        wide = self.losses()
        for more in ([], ["--grad-accum", "2"], ["--clip", "0"]):
            narrow = self.losses(*self.bf16, *more)
            self.assertLess(narrow[-1], 0.97 * narrow[0])
        narrow = self.losses(*self.bf16)
        self.assertNotEqual(narrow, wide)
        # Rounding by 2^-8 in each layer moves the loss far less than steps do.
        for step, (one, other) in enumerate(zip(narrow, wide)):
            self.assertLess(abs(one - other), 0.005 * other, step)

    def test_resume_is_bit_for_bit(self):
        path = harness.folder("bf16")
        whole = harness.run(*job(*self.bf16, "--save", path / "whole", "--defer", "never"))
        half = harness.run(*job(*self.bf16, "--steps", "2", "--ckpt", path / "ckpt"))
        self.assert_status(half, 0)
        footprint, smallest = harness.budgets(TINY + self.bf16)
        for mode in ("never", "always"):
            rest = harness.run(*job(*self.bf16, "--resume", path / "ckpt", "--save", path / mode,
                                    "--defer", mode, "--device-mem", (smallest + footprint) // 2,
                                    "--host-mem", "0", *harness.nvme()))
            self.assert_status(rest, 0)
            losses = [part.events("done")[0]["losses"] for part in (half, rest, whole)]
            self.assertEqual(losses[0] + losses[1], losses[2])
            self.assertEqual((path / "whole/model.safetensors").read_bytes(),
                             (path / mode / "model.safetensors").read_bytes())

    def test_evaluations_under_pressure(self):
        """The copies for the layers are dropped between their last use and the update, which an
        evaluation leaves out."""
        text = harness.scratch / "text16.txt"
        text.write_bytes(bytes(range(256)) * 40)
        more = [*self.bf16, "--data", text, "--eval-data", text, "--eval-every", "1",
                "--eval-batches", "2"]
        whole = harness.run(*job(*more))
        self.assert_status(whole, 0)
        footprint, smallest = harness.budgets(TINY + self.bf16)
        for mode in ("never", "always"):
            tight = harness.run(*job(*more, "--defer", mode, "--device-mem",
                                     smallest + (footprint - smallest) // 4, "--host-mem", "0",
                                     *harness.nvme()))
            self.assert_status(tight, 0)
            for kind, key in (("eval", "loss"), ("done", "losses")):
                self.assertEqual([event[key] for event in tight.events(kind)],
                                 [event[key] for event in whole.events(kind)])

    def test_resume_in_the_other_type_is_told(self):
        path = harness.folder("types")
        self.assert_status(harness.run(*job(*self.bf16, "--steps", "2", "--ckpt", path)), 0)
        same = [each for each in self.bf16 if each == "--reference"]
        rest = harness.run(*job("--resume", path, *same))
        self.assert_status(rest, 0)
        self.assertEqual(len(rest.errors()), 1, str(rest))
        self.assertIn("was written with dtype bf16, this run has f32", rest.err)

    def test_saved_model_begins_again(self):
        path = harness.folder("again")
        self.assert_status(harness.run(*job("--steps", "1", "--save", path)), 0)
        model = ["--init", path / "model.safetensors", "--lr", "0", "--weight-decay", "0"]
        wide, narrow = self.losses(*model), self.losses(*model, *self.bf16)
        for one, other in zip(narrow, wide):
            self.assertLess(abs(one - other), 0.005 * other)

    def test_footprint_is_smaller(self):
        deep = ["--layers", "4", "--width", "64", "--batch", "8", "--seq", "128", "--vocab", "256"]
        wide, _ = harness.budgets(deep)
        narrow, _ = harness.budgets(deep + self.bf16)
        self.assertLess(narrow, 0.7 * wide)

    def test_a_short_host_is_told_the_smallest_budget(self):
        """With no more room below, pages of what goes round the end of the step take more than are
        in use at once."""
        plan = ["plan", "--json", "--layers", "1", "--heads", "3", "--width", "192", "--vocab",
                "2048", "--batch", "1", "--seq", "65", "--threads", "2", "--recompute", "none",
                "--defer", "never", *self.bf16, "--offload", "host", "--host-mem", "9000000",
                "--device-mem"]
        smallest = harness.run(*plan, "64KiB").events("plan")[0]["smallest_device_bytes"]
        self.assert_status(harness.run(*plan, smallest), 0)
        for part in range(8, 16):
            self.assert_status(harness.run(*plan, smallest * part // 16), harness.DOES_NOT_FIT)

    def test_kept_plan_of_the_other_type_is_refused(self):
        path = harness.scratch / "narrow.plan"
        nvme = ["--offload", "nvme", "--nvme", "%s:64MiB" % harness.folder("kept16")]
        budget = ["--device-mem", "1MiB", "--host-mem", "128KiB", *nvme]
        kept = harness.run("plan", *TINY, *self.bf16, *budget, "--out", path)
        self.assert_status(kept, 0)
        self.assert_fails(harness.run("train", *TINY, *budget, "--plan", path), harness.USAGE, path,
                          "of another job")

    def test_openblas_is_refused(self):
        outcome = harness.run(*job("--dtype", "bf16", "--gemm", "openblas"))
        if "no matrix library" in outcome.err:
            self.skipTest("no OpenBLAS")
        self.assert_fails(outcome, harness.USAGE, "cannot multiply bf16", "--dtype f32")


class Deferred(harness.Case):
    """Updates that run in the next step: everybody sees them in time, to the last bit."""

    def arguments(self, name, mode, *more):
        text = harness.scratch / "text.txt"
        text.write_bytes(bytes(range(256)) * 40)
        footprint, smallest = harness.budgets(TINY)
        return job("--data", text, "--eval-data", text, "--eval-every", "3", "--eval-batches", "2",
                   "--steps", "7", "--ckpt", harness.scratch / name / "ckpt", "--ckpt-every", "2",
                   "--save", harness.scratch / name / "save", "--defer", mode, "--device-mem",
                   (smallest + footprint) // 2, "--host-mem", "0", *harness.nvme(), *more)

    def outcome(self, name, mode, *more):
        outcome = harness.run(*self.arguments(name, mode, *more))
        self.assert_status(outcome, 0)
        weights = (harness.scratch / name / "save/model.safetensors").read_bytes()
        return outcome, weights

    def test_evaluation_checkpoint_and_end(self):
        harness.folder("now")
        harness.folder("later")
        now, now_weights = self.outcome("now", "never")
        later, later_weights = self.outcome("later", "always")
        self.assertEqual(later.events("done")[0]["losses"], now.events("done")[0]["losses"])
        self.assertEqual([event["loss"] for event in later.events("eval")],
                         [event["loss"] for event in now.events("eval")])
        self.assertEqual(later_weights, now_weights)
        for step in ("step-00000006", "step-00000007"):
            for name in ("model.safetensors", "optimizer.safetensors"):
                self.assertEqual((harness.scratch / "later/ckpt" / step / name).read_bytes(),
                                 (harness.scratch / "now/ckpt" / step / name).read_bytes())
        # What evaluations and checkpoints made run early is told, and nothing else.
        self.assertEqual([event["step"] for event in later.events("step")
                          if event["flush_seconds"] > 0], [3, 4, 5, 7])
        self.assertTrue(all(event["flush_seconds"] == 0 for event in now.events("step")))
        # It goes on from a checkpoint in the middle either way.
        for mode in ("always", "never"):
            name = harness.folder("on-" + mode).name
            again, weights = self.outcome(name, mode, "--resume",
                                          harness.scratch / "later/ckpt/step-00000006")
            self.assertEqual(again.events("done")[0]["losses"],
                             now.events("done")[0]["losses"][6:])
            self.assertEqual(weights, now_weights)

    def test_plan_tells(self):
        footprint, smallest = harness.budgets(TINY)
        for mode in ("never", "always"):
            plan = harness.run("plan", *TINY, "--defer", mode, "--device-mem", footprint,
                               "--host-mem", "0", "--json", *harness.nvme())
            self.assertEqual(plan.events("plan")[0]["deferred_ops"] > 0, mode == "always")
        plan = harness.run("plan", *TINY, "--defer", "always", "--device-mem", footprint,
                           "--host-mem", "0", *harness.nvme())
        self.assertIn("updates run in the next step", plan.out)


class Refused(harness.Case):

    def test_nothing_is_written_for_a_job_that_does_not_fit(self):
        path = harness.folder("refused")
        before = sorted((harness.scratch / "nvme").iterdir())
        outcome = harness.run(*job("--device-mem", "64KiB", "--host-mem", "0", "--save",
                                   path / "save", "--ckpt", path / "ckpt", "--trace",
                                   path / "trace"), *harness.nvme())
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "smallest device budget")
        self.assertEqual(list(path.iterdir()), [])
        self.assertEqual(sorted((harness.scratch / "nvme").iterdir()), before)
        _, smallest = harness.budgets(TINY)
        self.assertIn(str(smallest), outcome.err)

    def test_bad_models(self):
        for more in (["--heads", "3"], ["--seq", "64", "--positions", "32"]):
            self.assert_fails(harness.run(*job(*more)), harness.USAGE)

    def test_files_that_are_not_there(self):
        for more in (["--data", "/nowhere/text"], ["--init", "/nowhere/model"],
                     ["--resume", "/nowhere/run"], ["--nvme", "/nowhere", "--offload", "nvme"],
                     ["--trace", "/nowhere/trace"]):
            outcome = harness.run(*job(*more))
            self.assertIn(outcome.status, (harness.USAGE, harness.IO), str(outcome))
            self.assert_fails(outcome, outcome.status, "/nowhere")

    def test_files_in_place_of_folders(self):
        """Before the first step, whatever rights the file has."""
        path = harness.folder("places") / "file"
        path.write_bytes(b"")
        for mode in (0o600, 0o700):
            path.chmod(mode)
            for option in ("--save", "--ckpt"):
                outcome = harness.run(*job(option, path))
                self.assert_fails(outcome, harness.IO, path, "Not a directory")
                self.assertEqual(outcome.out, "")

    def test_files_that_are_not_what_they_say(self):
        path = harness.folder("garbage")
        (path / "model.safetensors").write_bytes(b"\xff" * 100)
        (path / "short.bin").write_bytes(b"\x00" * 7)
        (path / "empty.txt").write_bytes(b"")
        for more in (["--init", path / "model.safetensors"], ["--data", path / "short.bin"],
                     ["--data", path / "empty.txt"]):
            outcome = harness.run(*job(*more))
            self.assertIn(outcome.status, (harness.USAGE, harness.CORRUPT), str(outcome))
            self.assertEqual(len(outcome.errors()), 1, str(outcome))


if __name__ == "__main__":
    harness.main()
