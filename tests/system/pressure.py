#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench pressure: what it writes, the order of its runs, what is left when one of them fails."""

import json
import signal
import subprocess
import xml.etree.ElementTree

import harness
from harness import TINY

SWEEP_KEYS = ["event", "case", "rounds", "interrupted", "steps", "model", "footprint_bytes",
              "smallest_device_bytes", "rows"]
ROW_KEYS = ["kind", "state", "device_bytes", "share", "smallest_device_bytes", "arguments"]
MEASURED_KEYS = ["seconds", "round_seconds", "predicted_seconds", "prediction_error",
                 "bound_seconds", "round_bound_seconds", "over_bound", "speed", "most_speed",
                 "bound_by", "moved_bytes", "gap_bytes", "peak_bytes", "budget_bytes",
                 "others_share"]
KINDS = ["memrun", "no_recompute", "no_offload", "no_search", "lru"]
SVG = "{http://www.w3.org/2000/svg}"


def job(*more):
    """A sweep over the tiny job, later options count; its results are named after the test."""
    return ["bench", "pressure", *TINY, "--steps", "2", "--rounds", "2", *harness.nvme(), *more]


def results(name):
    return ["--results", harness.folder(name) / "found"]


def read_results(name):
    """The JSON and the parsed SVG that a sweep wrote."""
    path = harness.scratch / name / "found"
    whole = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"),
                       parse_constant=harness.refuse_constant)
    return whole, xml.etree.ElementTree.parse(path.with_suffix(".svg")).getroot()


class Sweep(harness.Case):

    @classmethod
    def setUpClass(cls):
        cls.outcome = harness.run(*job("--json", "--ablations", "--budgets", "min,60%,1%",
                                       *results("sweep")))
        cls.found, cls.svg = read_results("sweep")

    def rows(self, state=None):
        return [row for row in self.found["rows"] if state in (None, row["state"])]

    def test_one_object_on_output_and_in_the_file(self):
        self.assert_status(self.outcome, 0)
        self.assertEqual(self.outcome.err, "")
        self.assertEqual(self.outcome.events(), [self.found])
        self.assert_keys(self.found, SWEEP_KEYS, whole=True)
        self.assertEqual((self.found["event"], self.found["case"]), ("bench", "pressure"))
        self.assertEqual((self.found["rounds"], self.found["interrupted"]), (2, False))

    def test_profiles_are_gone(self):
        self.assertEqual(list((harness.scratch / "tmp").glob("memrun-pressure-*")), [])

    def test_rows(self):
        footprint = self.found["footprint_bytes"]
        smallest = self.found["smallest_device_bytes"]
        kinds = [row["kind"] for row in self.rows()]
        self.assertEqual(kinds, KINDS[:1] + 3 * KINDS)
        self.assertEqual([row["device_bytes"] for row in self.rows()][::5],
                         [footprint, int(footprint * 0.6) // 4096 * 4096, smallest, 65536])
        for row in self.rows():
            self.assert_keys(row, ROW_KEYS)
            fits = row["device_bytes"] >= row["smallest_device_bytes"] or row is self.rows()[0]
            self.assertEqual(row["state"], "measured" if fits else "does not fit", row)
        self.assertEqual({row["state"] for row in self.rows()[-5:]}, {"does not fit"})
        self.assertEqual({row["state"] for row in self.rows()[-10:-8]}, {"measured"})

    def test_figures(self):
        whole = self.rows()[0]["round_seconds"]
        for row in self.rows("measured"):
            self.assert_keys({key: row[key] for key in list(row)[len(ROW_KEYS):]}, MEASURED_KEYS,
                             whole=True)
            self.assertEqual(len(row["round_seconds"]), 2)
            self.assertAlmostEqual(row["seconds"], sum(row["round_seconds"]) / 2, 12)
            bounds = row["round_bound_seconds"]
            self.assertAlmostEqual(row["bound_seconds"], sum(bounds) / 2, 12)
            for key, values, of in (("speed", whole, row["round_seconds"]),
                                    ("over_bound", row["round_seconds"], bounds),
                                    ("most_speed", whole, bounds)):
                self.assertEqual(len(of), 2)
                self.assertAlmostEqual(row[key], sum(a / b for a, b in zip(values, of)) / 2, 9)
            self.assertIn(row["bound_by"], ["compute"] + harness.LINK_KEYS)
            for tier in harness.TIER_KEYS:
                self.assertLessEqual(row["peak_bytes"][tier], row["budget_bytes"][tier])

    def test_bytes_are_moved_under_pressure_alone(self):
        for row in self.rows("measured"):
            tight = row["device_bytes"] == self.found["smallest_device_bytes"]
            moved = sum(row["moved_bytes"].values())
            if row is self.rows()[0]:
                self.assertEqual(moved, 0)
            elif tight:
                self.assertGreater(moved, 0)
            if row["kind"] in ("no_recompute", "lru"):
                self.assertEqual(row["gap_bytes"]["recomputed"], 0)
            if row["kind"] == "no_offload":
                self.assertEqual(moved, 0)

    def test_a_row_can_be_run_again(self):
        row = next(row for row in self.rows("measured") if row["kind"] == "lru")
        again = harness.run(*row["arguments"])
        self.assert_status(again, 0)
        self.assertEqual(again.events("done")[0]["plan"]["moved_bytes"], row["moved_bytes"])

    def test_plot(self):
        texts = ["".join(text.itertext()) for text in self.svg.iter(SVG + "text")]
        for word in ("100 %", "60 %", "seconds a step", "forecast", "NVMe", "made again",
                     "does not fit", "LRU"):
            self.assertIn(word, texts)
        width, height = (float(size) for size in self.svg.get("viewBox").split()[2:])
        for text in self.svg.iter(SVG + "text"):
            if text.get("x") is not None:
                self.assertTrue(0 < float(text.get("x")) < width, text.attrib)
                self.assertTrue(0 < float(text.get("y")) < height, text.attrib)


class Order(harness.Case):

    def test_rounds_go_forwards_and_backwards(self):
        budgets = ["--budgets", "60%,50%"]
        outcome = harness.run(*job("-v", "--rounds", "3", *budgets, *results("order")))
        self.assert_status(outcome, 0)
        turns = [line.split(": ", 2)[1:] for line in outcome.errors() if ": round " in line]
        self.assertEqual([turn[0] for turn in turns],
                         ["round %d of 3" % number for number in (1, 1, 1, 2, 2, 2, 3, 3, 3)])
        names = [turn[1].split(" (")[0] for turn in turns]
        self.assertEqual(names, ["without budgets", "60 %", "50 %",
                                 "without budgets", "50 %", "60 %",
                                 "without budgets", "60 %", "50 %"])

    def test_text(self):
        outcome = harness.run(*job("--budgets", "60%,min", "--ablations", *results("text")))
        self.assert_status(outcome, 0)
        for word in ("footprint", "x bound", "at most", "bound by", "moved in a step",
                     "between two uses", "peaks", "no recompute", "needs"):
            self.assertIn(word, outcome.out)
        self.assertTrue(all(len(line) <= 100 for line in outcome.out.splitlines()), outcome.out)


class Failures(harness.Case):

    def test_a_run_that_fails_costs_its_row_alone(self):
        harness.run("plan", *TINY, *harness.nvme())  # the drive is measured before it fails
        outcome = harness.run(*job("--json", "--budgets", "60%,min", *results("failed")),
                              env={"MEMRUN_INJECT": "write:eio:1"})
        self.assert_status(outcome, harness.IO)
        found, _ = read_results("failed")
        rows = found["rows"]
        self.assertEqual(rows[0]["state"], "measured")
        self.assertEqual(len(rows[0]["round_seconds"]), 2)
        failed = [row for row in rows if row["state"] == "failed"]
        self.assertIn(rows[-1], failed)  # the smallest budget cannot do without writes
        self.assertEqual(len(outcome.errors()), len(failed), str(outcome))
        for row, line in zip(failed, outcome.errors()):
            self.assertEqual((row["exit_status"], row["signal"]), (harness.IO, 0))
            self.assertIn("exit status 4: " + row["line"], line)
            self.assertIn("Input/output error", row["line"])

    def interrupt(self, name, when):
        """Starts a sweep, tells it to end once a line has `when`, and gives what it has found."""
        process = harness.start(job("-v", "--json", "--rounds", "1000", "--budgets", "60%",
                                    *results(name)),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            lines = []
            while not lines or when not in lines[-1]:
                lines.append(process.stderr.readline())
                self.assertNotEqual(lines[-1], "", lines)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=harness.TIMEOUT)
        finally:
            process.kill()
        outcome = harness.Outcome(["bench"], process.returncode, out, err)
        self.assert_status(outcome, harness.INTERRUPTED)
        found, _ = read_results(name)
        self.assertEqual(outcome.events(), [found])
        self.assertTrue(found["interrupted"])
        self.assertEqual(list((harness.scratch / "tmp").glob("memrun-pressure-*")), [])
        return found, outcome.errors()[-1]

    def test_interrupted(self):
        found, line = self.interrupt("interrupted", "round 3 of 1000")
        self.assertIn("interrupted in round 3 of 1000", line)
        self.assertEqual(found["rows"][1]["state"], "measured")
        self.assertEqual(len(found["rows"][1]["round_seconds"]), 2)
        self.assertEqual(found["rounds"], len(found["rows"][0]["round_seconds"]))

    def test_interrupted_before_anything_is_measured(self):
        found, line = self.interrupt("interrupted_first", "first run")
        self.assertIn("interrupted before round 1 of 1000", line)
        self.assertEqual([row["state"] for row in found["rows"]], ["not run", "not run"])
        found, line = self.interrupt("interrupted_whole", "round 1 of 1000: without")
        self.assertIn("interrupted in round 1 of 1000", line)
        self.assertEqual([row["state"] for row in found["rows"]], ["not run", "not run"])

    def test_what_no_file_can_hold_is_shown(self):
        (harness.folder("unwritable") / "found.json").mkdir()
        outcome = harness.run(*job("--json", "--rounds", "1", "--budgets", "60%", "--results",
                                   harness.scratch / "unwritable" / "found"))
        self.assert_status(outcome, harness.IO)
        self.assertEqual(len(outcome.errors()), 1, str(outcome))
        self.assertIn("found.json cannot be written: Is a directory", outcome.err)
        self.assertEqual([row["state"] for row in outcome.events("bench")[0]["rows"]],
                         ["measured", "measured"])

    def test_refused_before_anything_runs(self):
        missing = harness.scratch / "missing" / "found"
        other = harness.folder("refused") / "other"
        other.write_text("{}")
        described = other.with_name("described")
        described.write_text("name = elsewhere\ndevice_memory = 1 GiB\ncompute = 1 TFLOP/s\n"
                             "memory_bandwidth = 1 GB/s\ndevice_to_host = 1 GB/s\n"
                             "host_to_device = 1 GB/s\n")
        for words, told in ((["--budgets", "25%,x"], "'x'"), (["--budgets", "0%"], "'0%'"),
                            (["--steps", "1"], "--steps"),
                            (["--device-mem", "1MiB"], "--budgets"),
                            (["--ckpt", "there"], "--ckpt"), (["--results", missing], "missing"),
                            (["--profile", described], "%s: describes" % described),
                            (["--profile", other], "%s: neither" % other)):
            outcome = harness.run(*job(*words))
            self.assert_fails(outcome, harness.IO if told == "missing" else harness.USAGE, told)
            self.assertEqual(outcome.out, "")
        self.assert_fails(harness.run("bench", "offload", "--budgets", "25%"), harness.USAGE,
                          "bench pressure")


if __name__ == "__main__":
    harness.main()
