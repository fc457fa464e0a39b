#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line itself: help, completion, suggestions, values that are refused."""

import pathlib
import re
import subprocess

import harness

COMMANDS = ["train", "plan", "verify", "info", "bench", "layout"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


class CommandLine(harness.Case):

    def refused(self, arguments, *words):
        self.assert_fails(harness.run(*arguments), harness.USAGE, *words)

    def test_help(self):
        for arguments in (["--help"], ["-h"], ["help"], ["help", "train"]):
            outcome = harness.run(*arguments)
            self.assert_status(outcome, 0)
            self.assertIn("usage: memrun", outcome.out)
            self.assertEqual(outcome.err, "")

    def test_help_of_a_command_lists_its_options_alone(self):
        for command in COMMANDS:
            words = harness.run("complete", command).out.split()
            shown = harness.run(command, "--help")
            self.assert_status(shown, 0)
            listed = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", shown.out, re.MULTILINE)
            self.assertEqual(sorted(listed), sorted(w for w in words if w.startswith("--")))
        self.assertNotIn("--steps", harness.run("info", "--help").out)

    def test_version(self):
        outcome = harness.run("--version")
        self.assert_status(outcome, 0)
        self.assertRegex(outcome.out, r"^memrun \d+\.\d+\.\d+\n$")

    def test_no_command(self):
        self.refused([], "command is missing")

    def test_unknown_option_suggests(self):
        for typed, meant in (("--ofload", "--offload"), ("--offlaod", "--offload"),
                             ("--device_mem", "--device-mem"), ("--stepps", "--steps"),
                             ("--recomput", "--recompute"), ("--jsn", "--json"),
                             ("--weightdecay", "--weight-decay")):
            self.refused([typed, "train"], "unknown option " + typed,
                         "did you mean " + meant + "?")
        self.refused(["train", "--ofload=nvme"], "did you mean --offload?")
        self.refused(["-offload", "nvme", "train"], "option -offload;", "did you mean --offload?")
        self.refused(["train", "-jsn=1"], "option -jsn;", "did you mean --json?")

    def test_unknown_option_without_a_neighbour(self):
        self.refused(["train", "--zzzzzzzz"], "unknown option --zzzzzzzz")
        self.refused(["train", "--" + "x" * 5000], "unknown option --xxx")
        self.refused(["train", "-q"], "-q")

    def test_unknown_command_suggests(self):
        self.refused(["trian"], "did you mean train?")
        self.refused(["verfy"], "did you mean verify?")
        self.refused(["help", "verfy"], "did you mean verify?")
        self.refused(["banana"], "unknown command 'banana'")

    def test_arguments_that_nobody_takes(self):
        self.refused(["train", "twice"], "'twice'")
        self.refused(["info", "--steps", "3"], "--steps is no option of info")
        self.refused(["train", "--rounds", "3"], "--rounds is no option of train")
        self.refused(["bench", "ofload"], "did you mean offload")

    def test_options_around_the_command(self):
        tiny = harness.TINY + ["--json"] + harness.nvme()
        before = harness.run(*tiny, "plan")
        after = harness.run("plan", *tiny)
        joined = harness.run("plan", "--layers=2", *tiny[2:])
        self.assert_status(before, 0)
        self.assertEqual(before.events()[0]["model"], after.events()[0]["model"])
        self.assertEqual(joined.events()[0]["model"], after.events()[0]["model"])

    def test_values(self):
        for option, value in (
                ("--batch", "0"), ("--batch", "-1"), ("--batch", "65536"), ("--batch", "2x"),
                ("--batch", ""), ("--batch", " 2"), ("--batch", "1e3"), ("--batch", "0x10"),
                ("--batch", "99999999999999999999999"), ("--layers", "1025"), ("--steps", "0"),
                ("--seed", "-5"), ("--lr", "nan"), ("--lr", "inf"), ("--lr", "-1"),
                ("--lr", "1e-3junk"), ("--lr", "0x1p-3"), ("--lr", "11"), ("--eps", "0"),
                ("--eps", "1e-16"),
                ("--betas", "0.9"), ("--betas", "0.9,1"), ("--betas", "0.9,0.95,0.99"),
                ("--betas", "0.9;0.95"), ("--io-timeout", "0"), ("--threads", "0"),
                ("--threads", "1025"), ("--device-mem", "12Q"), ("--device-mem", "-1G"),
                ("--device-mem", "1.2.3G"), ("--device-mem", "99999999T"), ("--device-mem", "1"),
                ("--host-mem", "lots"), ("--nvme", "/tmp:12Q"), ("--nvme", ":5G"),
                ("--nvme", ""), ("--nvme", "/tmp:1"), ("--data", ""), ("--clip", "-0.5")):
            self.refused([option, value, "train"], option, "'%s'" % value)

    def test_words(self):
        self.refused(["train", "--offload", "nvem"], "--offload", "did you mean nvme?")
        self.refused(["train", "--device", "tpu"], "--device 'tpu': cpu or cuda is wanted")
        self.refused(["train", "--recompute", "maybe"], "auto, none or full")
        self.refused(["train", "--preset", "gpt3"], "gpt2-xl", "did you mean gpt2?")
        self.refused(["train", "--gemm", "mkl"], "dnnl")

    def test_missing_and_superfluous_values(self):
        self.refused(["train", "--steps"], "--steps needs a value")
        self.refused(["train", "--json=yes"], "--json takes no value")

    def test_too_many_paths(self):
        self.refused(["train"] + ["--nvme", "/tmp"] * 17, "at most 16")

    def test_completion_words(self):
        words = harness.run("complete").out.split()
        self.assertEqual([word for word in COMMANDS if word not in words], [])
        self.assertIn("--offload", words)
        self.assertEqual(harness.run("complete", "--", "--offload").out.split(),
                         ["none", "host", "nvme", "auto"])
        self.assertEqual(harness.run("complete", "--", "--data").out.split(), ["<file>"])
        self.assertEqual(harness.run("complete", "--", "--ckpt").out.split(), ["<folder>"])
        self.assertEqual(harness.run("complete", "--", "--json").out.split(), [])

    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = """
            source "$1"; shift
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _memrun "$1"; printf '%s\\n' "${COMPREPLY[@]}"
        """
        found = subprocess.run(
            ["bash", "-c", script, "bash", str(ROOT / "completions/memrun.bash"), harness.memrun,
             *words], env=harness.environment(), capture_output=True, text=True, timeout=30,
            check=True)
        return [word for word in found.stdout.splitlines() if word]

    def test_bash_completion(self):
        self.assertEqual(self.complete("tr"), ["train"])
        self.assertEqual(self.complete("train", "--off"), ["--offload"])
        self.assertEqual(self.complete("train", "--offload", "n"), ["none", "nvme"])
        self.assertEqual(self.complete("train", "--offload", "=", "h"), ["host"])
        self.assertEqual(self.complete("info", "--ste"), [])
        self.assertEqual(self.complete("bench", "off"), ["offload"])
        self.assertEqual(self.complete("layout", "--cap"), ["--capacity"])
        changes = str(ROOT / "CHANGELOG.md")
        self.assertEqual(self.complete("layout", changes[:-6]), [changes])
        spaced = harness.folder("spaced") / "two words.csv"
        spaced.touch()
        for words in (["layout"], ["train", "--data"]):
            self.assertEqual(self.complete(*words, str(spaced)[:-6]), [str(spaced)])

    def test_manual_pages_name_every_option(self):
        general = (ROOT / "man/memrun.1").read_text()
        for command in COMMANDS:
            page = general + (ROOT / ("man/memrun-%s.1" % command)).read_text()
            if command not in ("info", "layout"):
                page += (ROOT / "man/memrun-train.1").read_text()
            for word in harness.run("complete", command).out.split():
                self.assertRegex(page, r"Fl -%s(?![\w-])" % word[2:],
                                 command + "(1) lacks " + word)


if __name__ == "__main__":
    harness.main()
