#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memrun layout: packings that are checked here, refusals with numbers, and bad files.

Takes the folder of published cases after the scratch folder.
"""

import csv
import pathlib
import sys

import harness

HEADER = "id,lower,upper,size"
KEYS = ["event", "fits", "verdict", "buffers", "capacity_bytes", "peak_bytes", "bound_bytes",
        "tries", "seconds", "offsets"]
CAPACITY = 1048576
# The load is 6 bytes at every moment, but no packing has a peak below 7.
KNOTTED = ["0,3,5", "0,8,1", "9,11,4", "3,9,1", "4,8,1", "6,8,1", "4,6,2", "3,11,1", "6,11,1",
           "8,9,3", "3,4,3"]


def write(name, *rows):
    path = harness.scratch / name
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def knotted():
    return write("knotted.csv", *["b%d,%s" % row for row in enumerate(KNOTTED)])


class Layout(harness.Case):

    def check(self, path, packed, capacity):
        """The packing repeats the buffers and gives them places of their own."""
        with open(path, newline="") as file:
            given = list(csv.DictReader(file))
        with open(packed, newline="") as file:
            found = list(csv.DictReader(file))
        self.assertEqual([{**row, "offset": None} for row in given],
                         [{**row, "offset": None} for row in found])
        places = [[int(row[key]) for key in ("lower", "upper", "offset", "size")] for row in found]
        for i, (lower, upper, offset, size) in enumerate(places):
            self.assertTrue(0 <= offset <= capacity - size)
            for other in places[:i]:
                self.assertFalse(lower < other[1] and other[0] < upper and
                                 offset < other[2] + other[3] and other[2] < offset + size)

    def test_published_cases(self):
        for path in sorted(CASES.glob("*.csv")):
            packed = harness.scratch / "packed.csv"
            outcome = harness.run("layout", path, "--capacity", CAPACITY, "--out", packed)
            self.assert_status(outcome, 0)
            self.assertIn("verdict    fits", outcome.out)
            self.check(path, packed, CAPACITY)

    def test_json(self):
        path = write("json.csv", "a,0,4,8", "b,3,6,8", "c,4,6,8")
        event = harness.run("layout", "--json", path, "--capacity", "16").events("layout")[0]
        self.assert_keys(event, KEYS)
        self.assertEqual((event["fits"], event["verdict"], event["peak_bytes"]), (True, "fits", 16))
        self.assertEqual(event["buffers"], len(event["offsets"]))

    def test_less_than_the_load_is_impossible(self):
        path = write("load.csv", "a,0,4,8", "b,3,6,8")
        outcome = harness.run("layout", path, "--capacity", "15", "--out", path.with_suffix(".out"))
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "15 bytes", "peak found is 16",
                          "below 16", "proven")
        self.assertFalse(path.with_suffix(".out").exists())

    def test_proof_beyond_the_load(self):
        outcome = harness.run("layout", knotted(), "--capacity", "6")
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "6 bytes", "below 7", "proven")
        self.assertIn("impossible", outcome.out)
        self.assert_status(harness.run("layout", knotted(), "--capacity", "7"), 0)

    def test_deadline(self):
        outcome = harness.run("layout", knotted(), "--capacity", "6", "--deadline", "0", "--json")
        self.assert_fails(outcome, harness.DOES_NOT_FIT, "below 6", "deadline of 0 s")
        self.assertEqual(outcome.events("layout")[0]["verdict"], "undecided")

    def test_bad_lines_are_named(self):
        for row, words in (("a,0,4", ["3 fields"]), ("a,0,4,8,9", ["5 fields"]),
                           ("a,0,x,8", ['"x"', "whole number"]), ("a,-1,4,8", ['"-1"']),
                           ("a,0,4,8k", ['"8k"']), ("a,0,4, 8", ['" 8"']), ("a,,4,8", ['""']),
                           ("a,0,4,18446744073709551616", ["2^64"]), ("a,4,4,8", ["above"]),
                           ("a,0,4,0", ["above 0"]), ("a,0,4,8\0", ["zero byte"])):
            path = write("bad.csv", "ok,0,4,8", "", row)
            self.assert_fails(harness.run("layout", path, "--capacity", "64"), harness.USAGE,
                              "bad.csv:4:", *words)

    def test_ends_of_lines(self):
        path = harness.scratch / "ends.csv"
        path.write_bytes(b"id,lower,upper,size\r\n\r\na,0,3,10\r\nb,1,4,20\r")
        self.assert_status(harness.run("layout", path, "--capacity", "30"), 0)
        self.assert_fails(harness.run("layout", path, "--capacity", "29"), harness.DOES_NOT_FIT)
        for text, line in ((b"id,lower,upper,size\na,0,3,10\rb,1,4,20\n", 2),
                           (b"id,lower,upper,size\ra,0,3,10\rb,1,4,20\r", 1),
                           (b"id,lower,upper,size\n\na,0,3,10\r\r\n", 3),
                           (b"id,lower,upper,size\n\rb,1,4,20\n", 2)):
            path.write_bytes(text)
            self.assert_fails(harness.run("layout", path, "--capacity", "30"), harness.USAGE,
                              "ends.csv:%d:" % line, "carriage return")

    def test_names_are_of_one_buffer_each(self):
        for rows, words in ((["a,0,3,10", ",3,5,8"], ["names.csv:3:", '"" is not a name']),
                            (["b,0,3,1", "a,0,3,1", "c,0,3,1", "c,3,4,1", "a,3,4,1", "c,4,5,1"],
                             ["names.csv:5:", '"c"', "line 4"]),
                            (["a,0,3,10", "", "a,0,3,10"], ["names.csv:4:", '"a"', "line 2"])):
            self.assert_fails(harness.run("layout", write("names.csv", *rows), "--capacity", "64"),
                              harness.USAGE, *words)

    def test_what_is_long_is_quoted_in_part(self):
        for row, quoted in (("a,0,3," + "1" * 5000, "1" * 40), ("a,0,%s,8" % ("é" * 500), "é" * 20),
                            ("a,0,x%s,8" % ("é" * 500), "x" + "é" * 19)):
            outcome = harness.run("layout", write("long.csv", row), "--capacity", "64")
            self.assert_fails(outcome, harness.USAGE, 'long.csv:2: "%s..." is not' % quoted,
                              "a whole number below 2^64")

    def test_bad_files(self):
        empty = harness.scratch / "empty.csv"
        empty.write_text("")
        self.assert_fails(harness.run("layout", empty, "--capacity", "64"), harness.USAGE,
                          "empty.csv:1:", HEADER)
        empty.write_text("id,from,to,size\n")
        self.assert_fails(harness.run("layout", empty, "--capacity", "64"), harness.USAGE,
                          "empty.csv:1:", HEADER)
        missing = harness.scratch / "missing.csv"
        self.assert_fails(harness.run("layout", missing, "--capacity", "64"), harness.IO,
                          "missing.csv")
        self.assert_fails(harness.run("layout", harness.scratch, "--capacity", "64"), harness.IO)
        self.assert_fails(harness.run("layout", knotted(), "--capacity", "64", "--out",
                                      missing / "packed.csv"), harness.IO, "packed.csv")

    def test_what_lives_at_once_has_a_limit(self):
        for rows, line in ((["a,0,4,8", "", "b,0,4,9223372036854775807"], 4),
                           (["a,0,3,9223372036854775807", "b,0,3,9223372036854775807"], 2),
                           (["a,0,4,8", "b,0,4,4611686018427387904"], 3)):
            huge = write("huge.csv", *rows)
            self.assert_fails(harness.run("layout", huge, "--capacity", "64"), harness.USAGE,
                              "huge.csv:%d:" % line, "at once", "4611686018427387904")
        apart = write("apart.csv", "a,0,1,4000000000000000000", "b,1,2,4000000000000000000",
                      "c,2,3,4000000000000000000")
        self.assert_status(harness.run("layout", apart, "--capacity", "4500000000000000000"), 0)

    def test_no_buffers(self):
        self.assert_status(harness.run("layout", write("none.csv"), "--capacity", "1"), 0)

    def test_usage(self):
        self.assert_fails(harness.run("layout"), harness.USAGE, "one file")
        self.assert_fails(harness.run("layout", knotted()), harness.USAGE, "--capacity")
        self.assert_fails(harness.run("layout", knotted(), "--capacity", "0"), harness.USAGE)


if __name__ == "__main__":
    CASES = pathlib.Path(sys.argv.pop(3))
    harness.main()
