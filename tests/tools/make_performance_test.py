#!/usr/bin/env python3
"""docs/performance.md is what bench/results gives, and files that are not of the schema are refused with their name and place."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import draw_design  # noqa: E402
import make_performance  # noqa: E402

GOOD = {"cpu": "a processor", "threads": 2, "date": "2026-12-01", "build": None, "peers": {"llama_cpp": "1.0"}, "command": "bench",
        "rows": [{"shape": "llama-3.2-1b", "type": "q4_0", "test": "decode 48", "pairs": 2, "penstock": [10.0, 30.0], "llama_cpp": 10.0,
                  "llama_cpp_ratio": 2.0}]}


class Performance(unittest.TestCase):
    def make(self, **files):
        """The page that these files give: name (with _ for -) to content."""
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                text = data if isinstance(data, str) else json.dumps(data)
                pathlib.Path(folder, f"{name.replace('_', '-')}.json").write_text(text)
            return make_performance.make(pathlib.Path(folder))

    def test_page_and_pictures_are_what_the_programs_make(self):
        for tool in ("make_performance.py", "draw_design.py"):
            done = subprocess.run([sys.executable, ROOT / "tools" / tool, "--check"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_every_plot_is_on_the_page(self):
        made = make_performance.make(ROOT / "bench/results")
        plots = {path for path in made if path.endswith(".svg")}
        self.assertGreater(len(plots), 5)
        there = {f"docs/images/{path.name}" for path in (ROOT / "docs/images").glob("performance-*.svg")}
        self.assertEqual(there, plots)
        for plot in plots:
            self.assertIn(f"({plot.removeprefix('docs/')})", made["docs/performance.md"])

    def test_newest_number_and_its_pairs(self):
        later = {**GOOD, "date": "2026-12-02", "peers": {}, "rows": [{**GOOD["rows"][0], "penstock": 40.0}]}
        del later["rows"][0]["llama_cpp"], later["rows"][0]["llama_cpp_ratio"]
        page = self.make(cpu_zen4_b=GOOD, cpu_zen4_a=later)["docs/performance.md"]
        self.assertIn("| **llama-3.2-1b q4_0** | Penstock | 40.0 |", page)
        self.assertIn("|  | llama.cpp | 10.0 beside 20.0 (2.00) |", page)
        self.assertIn("Peers: llama.cpp 1.0.", page)
        page = self.make(cpu_zen4_a=GOOD)["docs/performance.md"]
        self.assertIn("| 10.0 (2.00) |", page)

    def test_tables_have_a_page_of_their_own(self):
        table = {**GOOD, "topic": "ranks", "title": "Two of them", "note": "quiet", "columns": ["a", "b"], "rows": [["x", 1234]]}
        page = self.make(table_zen4=table)["docs/measurements.md"]
        self.assertIn("## What do several processes bring?\n\n**Two of them** (AMD EPYC, Zen 4, 2 threads; quiet):", page)
        self.assertIn("| x | 1,234 |", page)

    def test_other_kinds_of_files_are_left_alone(self):
        self.assertEqual(self.make(agents_zen5={"turns": []}, cpu_zen4=GOOD), self.make(cpu_zen4=GOOD))

    def test_what_is_not_of_the_schema_is_refused(self):
        row = GOOD["rows"][0]
        for data, words in (
                ("{", "cpu-zen4.json: expected JSON"),
                ({key: value for key, value in GOOD.items() if key != "command"}, "cpu-zen4.json: file: expected keys"),
                ({**GOOD, "more": 1}, "cpu-zen4.json: file: expected no other keys"),
                ({**GOOD, "date": "yesterday"}, "cpu-zen4.json: date: expected YYYY-MM-DD or null, got \"yesterday\""),
                ({**GOOD, "rows": []}, "cpu-zen4.json: rows: expected a list, got []"),
                ({**GOOD, "peers": {}}, "cpu-zen4.json: rows[0].llama_cpp: expected a peer whose version is in peers"),
                ({**GOOD, "rows": [{**row, "penstock": -1}]}, "cpu-zen4.json: rows[0].penstock: expected a number above 0"),
                ({**GOOD, "rows": [row, {**row, "tset": 1}]}, "cpu-zen4.json: rows[1]: expected keys of"),
                ({**GOOD, "rows": [{**row, "pairs": 0}]}, "cpu-zen4.json: rows[0].pairs: expected a count, got 0")):
            with self.assertRaises(make_performance.Bad) as raised:
                self.make(cpu_zen4=data)
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(make_performance.Bad) as raised:
            self.make(cpu_abacus=GOOD)
        self.assertIn("cpu-abacus.json: name: expected KIND-MACHINE", str(raised.exception))
        table = {**GOOD, "topic": "ranks", "title": "t", "columns": ["a", "b"], "rows": [[1]]}
        for data, words in ((table, "table-zen4.json: rows[0]: expected 2 cells, got [1]"),
                            ({**table, "topic": "weather"}, "table-zen4.json: topic: expected one of")):
            with self.assertRaises(make_performance.Bad) as raised:
                self.make(table_zen4=data)
            self.assertIn(words, str(raised.exception))

    def test_pictures_are_readable_on_light_and_dark(self):
        """No background, and no colour that vanishes on white or on black."""
        for name, draw in draw_design.PICTURES.items():
            svg = draw().svg()
            self.assertNotIn("#000", svg, name)
            self.assertNotIn('width="100%"', svg, name)


if __name__ == "__main__":
    unittest.main()
