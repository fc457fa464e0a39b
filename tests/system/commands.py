#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan, info, bench, what is read, and the two commands that the README opens with."""

import os
import pathlib

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
        self.assertIsNone(event["smallest_device_bytes"])

    def test_roles_of_the_largest_tensors(self):
        outcome = harness.run("plan", "--json", *TINY, "--vocab", "2048", *harness.bf16())
        self.assert_status(outcome, 0)
        roles = {tensor["name"]: tensor["role"]
                 for tensor in outcome.events("plan")[0]["largest_tensors"]}
        self.assertEqual(roles["transformer.wte.weight"], "parameter")
        self.assertEqual(roles["working.transformer.wte.weight"], "derived")

    def test_json_of_a_refusal_promises_nothing(self):
        outcome = harness.run("plan", "--json", *TINY, "--device-mem", "64KiB", "--host-mem", "0",
                              *harness.nvme())
        self.assert_status(outcome, harness.DOES_NOT_FIT)
        event = outcome.events("plan")[0]
        self.assertGreater(event["smallest_device_bytes"], 64 << 10)
        for key in ("predicted_seconds", "bound_seconds", "bound_by"):
            self.assertIsNone(event[key], key)

    def test_text(self):
        outcome = harness.run("plan", "--check", *TINY, *harness.nvme())
        self.assert_status(outcome, 0)
        for word in ("verdict    fits", "footprint", "forecast", "device", "largest tensors",
                     "checked"):
            self.assertIn(word, outcome.out)
        table = outcome.out.split("largest tensors", 1)[1].split("\n\n")[0].splitlines()[1:]
        self.assertEqual(len({len(line) for line in table}), 1, outcome.out)

    def test_smallest_budget_is_enough_and_less_is_not(self):
        _, smallest = harness.budgets(TINY)
        rest = ["--host-mem", "0", *TINY, *harness.nvme()]
        self.assert_status(harness.run("plan", "--check", *rest, "--device-mem", smallest), 0)
        self.assert_status(harness.run("train", *rest, "--device-mem", smallest), 0)
        less = harness.run("plan", *rest, "--device-mem", max(65536, smallest - 8192))
        self.assert_fails(less, harness.DOES_NOT_FIT, "--device-mem", smallest)
        self.assertIn("does not fit", less.out)

    def test_smallest_budget_where_the_host_is_short(self):
        """Rounding to pages is lost where all else is used up: they are small then."""
        job = ["--offload", "host", "--host-mem", "24MiB"]
        refused = harness.run("plan", "--json", *job, "--device-mem", "64MiB")
        smallest = refused.events("plan")[0]["smallest_device_bytes"]
        for device, status in ((smallest, 0), (smallest + (4 << 20), 0),
                               (smallest - smallest // 64, harness.DOES_NOT_FIT)):
            self.assert_status(harness.run("plan", *job, "--device-mem", device), status)

    def test_smallest_budget_has_no_more_pages_than_can_be_mapped(self):
        job = ["--layers", "1", "--heads", "1", "--width", "64", "--vocab", "150000", "--batch",
               "4", "--seq", "512"]
        _, smallest = harness.budgets(job)
        for device, status in ((smallest, 0), (smallest - 8192, harness.DOES_NOT_FIT)):
            self.assert_status(harness.run("plan", *job, "--host-mem", "0", *harness.nvme(),
                                           "--device-mem", device), status)

    def test_a_path_that_cannot_be_used_is_refused_as_by_train(self):
        """Also where the speed of its drive is known."""
        path = harness.folder("unusable")
        self.assert_status(harness.run("plan", *TINY, "--nvme", path, "--offload", "nvme"), 0)
        (path / "file").touch()
        for unusable in (path / "file", path / "missing", "/proc"):
            for command in ("plan", "train", "info"):
                job = [] if command == "info" else [*TINY, "--offload", "nvme"]
                self.assert_fails(harness.run(command, *job, "--nvme", unusable), harness.IO,
                                  "nvme %s: " % unusable)

    def test_nothing_is_written(self):
        path = harness.folder("planned")
        self.assert_status(harness.run("plan", *TINY, "--save", path / "save", "--ckpt",
                                       path / "ckpt"), 0)
        self.assertEqual(list(path.iterdir()), [])


class KeptPlan(harness.Case):
    """plan --out, plan --plan, train --plan."""

    JOB = [*TINY, "--device-mem", "1MiB", "--host-mem", "128KiB"]

    def setUp(self):
        # A limit, because free space changes between two commands.
        self.nvme = ["--offload", "nvme", "--nvme", "%s:64MiB" % harness.folder("kept")]

    def keep(self, name):
        path = harness.scratch / name
        outcome = harness.run("plan", "--json", *self.JOB, *self.nvme, "--out", path)
        self.assert_status(outcome, 0)
        return path, outcome

    def test_same_plan_comes_back(self):
        path, fresh = self.keep("same.plan")
        kept = harness.run("plan", "--json", *self.JOB, *self.nvme, "--plan", path)
        self.assert_status(kept, 0)
        self.assertEqual(kept.out, fresh.out)
        event = kept.events("plan")[0]
        self.assertGreater(event["links"]["nvme_read"]["bytes"], 0)
        again = harness.scratch / "again.plan"
        self.assert_status(harness.run("plan", *self.JOB, *self.nvme, "--plan", path, "--out",
                                       again), 0)
        text = path.read_text()
        self.assertEqual(again.read_text(), text)
        footprint = '"footprint_bytes":%d' % event["footprint_bytes"]
        self.assertIn(footprint, text)
        path.write_text(harness.seal(text.replace(footprint, '"footprint_bytes":1')))
        kept = harness.run("plan", "--json", *self.JOB, *self.nvme, "--plan", path)
        self.assertEqual(kept.out, fresh.out)

    def test_train_follows_it_to_the_same_losses(self):
        path, _ = self.keep("train.plan")
        losses = []
        for extra in ([], ["--plan", path]):
            outcome = harness.run("train", "--json", *self.JOB, *self.nvme, *extra)
            self.assert_status(outcome, 0)
            losses.append(outcome.events("done")[0]["losses"])
        self.assertEqual(losses[0], losses[1])

    def test_refusals(self):
        path, _ = self.keep("refused.plan")
        rest = [*self.nvme, "--plan", path]
        self.assert_fails(harness.run("train", *self.JOB, "--batch", "3", *rest), harness.USAGE,
                          path, "of another job")
        self.assert_fails(harness.run("train", *self.JOB, "--threads", "1", *rest), harness.USAGE,
                          path, "of another machine")
        self.assert_fails(harness.run("train", *self.JOB, "--device-mem", "512KiB", *rest),
                          harness.DOES_NOT_FIT, path, "of device memory")
        self.assert_fails(harness.run("plan", *self.JOB, "--plan", harness.scratch / "none.plan"),
                          harness.IO, "none.plan")
        for made, wanted in ((["--recompute", "full"], ["--recompute", "none"]),
                             (["--defer", "always"], ["--defer", "never"])):
            self.assert_status(harness.run("plan", *self.JOB, *self.nvme, *made, "--out", path), 0)
            self.assert_status(harness.run("plan", *self.JOB, *rest), 0)
            for command in ("plan", "train"):
                self.assert_fails(harness.run(command, *self.JOB, *rest, *wanted), harness.USAGE,
                                  path, " ".join(wanted))
        text = path.read_text()
        path.write_text(text[:len(text) // 2])
        self.assert_fails(harness.run("train", *self.JOB, *rest), harness.CORRUPT, path, "line")
        path.write_text(text.replace('"footprint_bytes":', '"footprint_bytes":1', 1))
        self.assert_fails(harness.run("plan", *self.JOB, *rest), harness.CORRUPT, path, "checksum",
                          "makes it again")
        path.write_text(text.replace('"memrun_plan":9', '"memrun_plan":7'))
        self.assert_fails(harness.run("plan", *self.JOB, *rest), harness.CORRUPT, path, "version 7")
        path.write_text("memrun")
        self.assert_fails(harness.run("plan", *self.JOB, *rest), harness.CORRUPT, path)


class DescribedMachine(harness.Case):
    """plan --profile with a description."""

    MACHINE = """name = shed
device_memory = 4 MiB   # more than the tiny job needs
host_memory = 1 GiB
compute = 1 GFLOP/s
memory_bandwidth = 1 GB/s
device_to_host = 1 GB/s
host_to_device = 1 GB/s
"""

    def write(self, text):
        path = harness.scratch / "shed.profile"
        path.write_text(text)
        return path

    def test_seven_billion_parameters_in_no_memory(self):
        example = pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile"
        before = example.read_text()
        outcome = harness.run("plan", "--json", "--profile", example, "--layers", "32", "--width",
                              "4096", "--heads", "32")
        self.assert_status(outcome, 0)
        event = outcome.events("plan")[0]
        self.assertGreater(event["footprint_bytes"], 90 << 30)
        self.assertEqual(event["budget_bytes"]["device"], 76 << 30)
        self.assertEqual(event["budget_bytes"]["nvme"], 7 * 10**12)
        self.assertEqual(example.read_text(), before)

    def test_updates_on_the_host_and_in_the_next_step(self):
        """A host that has no time for all updates: the device does the others in the next step. A
        plan that is kept says which."""
        example = pathlib.Path(__file__).parents[2] / "examples" / "h100-node.profile"
        path = self.write(example.read_text().replace("# host_memory_bandwidth = 200 GB/s",
                                                      "host_memory_bandwidth = 60 GB/s"))
        kept = harness.scratch / "both.plan"
        job = ["plan", "--json", "--profile", path, "--preset", "gpt2", "--batch", "16", "--seq",
               "1024", "--dtype", "bf16", "--offload", "host", "--device-mem", "2GiB"]
        events = []
        for extra in (["--out", kept], ["--plan", kept]):
            outcome = harness.run(*job, *extra)
            self.assert_status(outcome, 0)
            events.append(outcome.events("plan")[0])
            self.assertGreater(events[-1]["deferred_ops"], 0)
            self.assertGreater(events[-1]["host_ops"], 0)
        self.assertEqual(events[0], events[1])

    def test_the_machine_is_told(self):
        """The matrix library is this machine's, and so is --device cuda, which is not looked at."""
        path = self.write(self.MACHINE)
        for device in ([], ["--device", "cuda"]):
            outcome = harness.run("plan", *TINY, *device, "--profile", path)
            self.assert_status(outcome, 0)
            self.assertEqual(outcome.err, "")
            self.assertIn("\nmachine    shed, described by %s\n" % path, outcome.out)
            self.assertNotIn("GEMM", outcome.out)
        event = harness.run("plan", "--json", *TINY, "--profile", path).events("plan")[0]
        self.assertEqual([event[key] for key in ("machine", "described", "profile")],
                         ["shed", True, str(path)])
        event = harness.run("plan", "--json", *TINY).events("plan")[0]
        self.assertRegex(event["machine"], r".\|\d+\|2$")
        cache = harness.profile_of(event["machine"])
        self.assertEqual([event[key] for key in ("described", "profile")], [False, str(cache)])
        self.assertIn("\nmachine    this one, profile %s\n" % cache,
                      harness.run("plan", *TINY).out)

    def test_numbers_of_threads_keep_their_profiles(self):
        kept = {}
        for threads in (1, 2, 1):
            job = ["--json", *TINY, "--threads", threads, "--offload", "none"]
            event = harness.run("plan", *job).events("plan")[0]
            path = harness.profile_of(event["machine"])
            self.assertEqual(event["profile"], str(path))
            self.assertEqual(kept.setdefault(threads, path.read_text()), path.read_text())
        self.assertNotEqual(kept[1], kept[2])

    def test_budgets_are_its_tiers_unless_given(self):
        path = self.write(self.MACHINE)
        event = harness.run("plan", "--json", *TINY, "--profile", path).events("plan")[0]
        self.assertEqual(event["budget_bytes"], {"device": 4 << 20, "host": 1 << 30, "nvme": 0})
        event = harness.run("plan", "--json", *TINY, "--profile", path, "--host-mem", "1MiB",
                            "--offload", "none").events("plan")[0]
        self.assertEqual(event["budget_bytes"], {"device": 4 << 20, "host": 0, "nvme": 0})

    def test_budgets_of_tiers_left_out_are_told(self):
        path = self.write(self.MACHINE)
        for offload, told in (("none", ["--host-mem", "--nvme"]), ("host", ["--nvme"]),
                              ("auto", [])):
            outcome = harness.run("plan", *TINY, "--profile", path, "--offload", offload,
                                  "--host-mem", "1MiB", "--nvme", "/tmp:1MiB")
            for option in ("--host-mem", "--nvme"):
                self.assertEqual(f"{option} is not used" in outcome.err, option in told,
                                 outcome.err)

    def test_budgets_beyond_it_are_cut_to_its_tiers(self):
        path = self.write(self.MACHINE)
        outcome = harness.run("plan", "--json", *TINY, "--profile", path, "--device-mem", "5MiB",
                              "--host-mem", "1GiB", "--nvme", "/tmp:1GiB")
        self.assert_status(outcome, 0)
        self.assertEqual(outcome.events("plan")[0]["budget_bytes"],
                         {"device": 4 << 20, "host": 1 << 30, "nvme": 0})
        for line, words in zip(outcome.errors(), ("4.00 MiB of device memory", "0 B of NVMe")):
            self.assertIn("%s: 'shed' has %s, less than the budget" % (path, words), line)
        self.assertEqual(len(outcome.errors()), 2)

    def test_a_rate_of_no_op_is_told(self):
        path = self.write(self.MACHINE + "rate attention.foward = 1 TFLOP/s\n" +
                          "rate attention.forward.bf16 = 1 TFLOP/s\n")
        outcome = harness.run("plan", *TINY, "--profile", path)
        self.assert_status(outcome, 0)
        self.assertEqual(len(outcome.errors()), 1)
        self.assertIn("%s: rate attention.foward is not used" % path, outcome.err)

    def test_faults(self):
        path = self.write(self.MACHINE.replace("compute = 1 GFLOP/s", "compute = fast"))
        self.assert_fails(harness.run("plan", *TINY, "--profile", path), harness.USAGE, path,
                          "line 4", "compute 'fast'")
        path = self.write(self.MACHINE)
        for command in ("train", "info"):
            job = TINY if command == "train" else []
            self.assert_fails(harness.run(command, *job, "--profile", path), harness.USAGE, "shed")
        self.assertEqual(path.read_text(), self.MACHINE)

    def test_no_pipe_is_taken(self):
        """It is read again, which would wait for ever or find nothing."""
        path = harness.folder("pipe") / "shed.profile"
        os.mkfifo(path)
        for command in (["plan"], ["train"], ["bench", "pressure"]):
            self.assert_fails(harness.run(*command, *TINY, "--profile", path), harness.USAGE, path,
                              "a pipe or a device")


class Info(harness.Case):

    CUDA_KEYS = ["name", "available", "reason", "model", "driver_version", "capability",
                 "processors", "memory_bytes", "free_bytes", "memory_bytes_per_second",
                 "pinned_bytes_per_second", "pageable_bytes_per_second"]

    def test_json(self):
        outcome = harness.run("info", "--json")
        self.assert_status(outcome, 0)
        event = outcome.events("info")[0]
        devices = {device["name"]: device for device in event["devices"]}
        self.assertTrue(devices["cpu"]["available"])
        self.assertEqual(devices["cuda"]["available"], devices["cuda"]["reason"] is None)
        for link in harness.LINK_KEYS:
            self.assertGreater(event["machine"]["links_bytes_per_second"][link], 0)

    def test_text(self):
        outcome = harness.run("info")
        self.assert_status(outcome, 0)
        for word in ("cpu", "cuda", "nvme_read", "GB/s"):
            self.assertIn(word, outcome.out)

    def test_without_a_driver(self):
        missing = {"MEMRUN_CUDA_DRIVER": "/nonexistent/libcuda.so.1"}
        outcome = harness.run("info", env=missing)
        self.assert_status(outcome, 0)
        self.assertIn("not available: no NVIDIA driver was found: /nonexistent", outcome.out)
        for command in ("info", "plan", "train"):
            outcome = harness.run(command, "--device", "cuda", env=missing)
            self.assert_status(outcome, 2)
            self.assertEqual(len(outcome.errors()), 1)
            self.assertIn("no NVIDIA driver was found", outcome.err)

    def test_fake_device(self):
        outcome = harness.run("info", "--device", "cuda", "--json",
                              env={"MEMRUN_CUDA_DRIVER": harness.fake_driver})
        self.assert_status(outcome, 0)
        event = outcome.events("info")[0]
        self.assertEqual(event["machine"]["device"], "cuda")
        self.assertEqual(event["devices"], event["machine"]["devices"])
        device = event["devices"][1]
        self.assertEqual(list(device), self.CUDA_KEYS)
        self.assertTrue(device["available"])
        self.assertGreater(device["memory_bytes"], device["free_bytes"])
        for key in self.CUDA_KEYS[4:10]:
            self.assertGreater(device[key], 0, key)
        for memory in self.CUDA_KEYS[10:]:
            self.assertEqual(list(device[memory]), ["device_to_host", "host_to_device", "both"])
            for way, rate in device[memory].items():
                self.assertGreater(rate, 0, way)

    def test_device_whose_memory_others_have(self):
        """Everything but the speeds is told, and one line says why they are not."""
        broken = {"MEMRUN_CUDA_DRIVER": harness.fake_driver,
                  "MEMRUN_FAKE_FAIL": "cuMemAlloc_v2:2:2"}
        outcome = harness.run("info", "--json", env=broken)
        self.assert_status(outcome, 0)
        device = outcome.events("info")[0]["devices"][1]
        self.assertTrue(device["available"])
        self.assertEqual([device[key] for key in self.CUDA_KEYS[9:]], [None] * 3)
        self.assertEqual(len(outcome.err.splitlines()), 1)
        self.assertIn("cuMemAlloc for measuring the device", outcome.err)
        outcome = harness.run("info", env=broken)
        self.assert_status(outcome, 0)
        self.assertIn("pinned memory: not measured", outcome.out)

    def test_fake_device_in_text(self):
        outcome = harness.run("info", env={"MEMRUN_CUDA_DRIVER": harness.fake_driver})
        self.assert_status(outcome, 0)
        rates = r"out \d+\.\d\d, in \d+\.\d\d, both at once \d+\.\d\d GB/s"
        for line in (r"cuda .*, sm_\d+, driver for CUDA \d+\.\d, .* of memory, .* free",
                     "pinned memory: " + rates, "pageable memory: " + rates):
            self.assertRegex(outcome.out, line)

    def test_kernels_of_the_processor_alone(self):
        for option in (["--reference"], ["--gemm", "openblas"]):
            outcome = harness.run("train", *TINY, "--device", "cuda", *option,
                                  env={"MEMRUN_CUDA_DRIVER": harness.fake_driver})
            self.assert_fails(outcome, harness.USAGE, option[0], "--device cpu")

    def told(self, words, path, *arguments, env=None):
        """One line has the words and the path, and a profile is there that says nothing."""
        outcome = harness.run("info", "--json", *arguments, env=env)
        self.assert_status(outcome, 0)
        self.assertEqual(len(outcome.errors()), 1)
        for word in (words, str(path)):
            self.assertIn(word, outcome.err)
        self.assertEqual(harness.run("info", "--json", "--profile", path).err, "")

    def test_profile_that_is_not_there_is_measured(self):
        path = harness.folder("profiles") / "new.json"
        self.told("not there; measuring this machine into it", path, "--profile", path)
        profile = path.read_text()
        self.assertIn('"memrun_profile": 2', profile)
        path.write_text(profile.replace('"memrun_profile": 2', '"memrun_profile": 1'))
        self.told("of another version", path, "--profile", path)

    def test_garbage_in_the_cache_is_replaced(self):
        cache = harness.folder("garbage")
        machine = harness.run("info", "--json").events()[0]["machine"]["machine"]
        path = harness.profile_of(machine, cache)
        path.parent.mkdir()
        path.write_text("{nonsense")
        self.told("not written by memrun", path, env={"XDG_CACHE_HOME": cache})

    def test_what_is_no_profile_is_not_overwritten(self):
        path = harness.folder("profiles") / "mine.json"
        for text in ("", "{nonsense", "{}", '{"memrun_plan": 8, "machine": "m"}'):
            path.write_text(text)
            for extra in ([], ["--reprofile"]):
                self.assert_fails(harness.run("info", "--profile", path, *extra), harness.USAGE,
                                  path, "not overwritten")
                self.assertEqual(path.read_text(), text)
        self.assert_fails(harness.run("info", "--profile", path.parent), harness.IO, path.parent)


class Files(harness.Case):

    def test_what_is_read_is_not_written_over(self):
        def train(*more):
            return ["train", *TINY, *more]

        data = harness.folder("read") / "text"
        data.write_bytes(bytes(range(97, 123)) * 100)
        profile = data.parent / "here.json"
        weights = harness.folder("weights")
        self.assert_status(harness.run(*train("--save", weights, "--profile", profile)), 0)
        model = weights / "model.safetensors"
        pressure = ["bench", "pressure", *TINY, "--results", profile.with_suffix("")]
        for path, command in ((data, train("--data", data, "--trace", data)),
                              (data, train("--eval-data", data, "--eval-every", 2, "--trace",
                                           data)),
                              (profile, train("--profile", profile, "--trace", profile)),
                              (profile, [*pressure, "--profile", profile]),
                              (model, ["plan", *TINY, "--init", model, "--out", model]),
                              (data, ["verify", *TINY, "--data", data, "--trace", data])):
            before = path.read_bytes()
            outcome = harness.run(*command)
            self.assert_fails(outcome, harness.USAGE, "is the file that is read")
            self.assertEqual(path.read_bytes(), before)


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
