#!/usr/bin/env python3
"""README's table of architectures is what the program prints, and a table that differs is noticed."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import architecture_table  # noqa: E402


class ArchitectureTable(unittest.TestCase):
    def test_readme_has_the_programs_table(self):
        program = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release"), "penstock")
        done = subprocess.run([sys.executable, ROOT / "tools/architecture_table.py", "--check", program],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_only_the_table_changes(self):
        text = f"before\n{architecture_table.BEGIN}\n| old |\n{architecture_table.END}\nbehind\n"
        new = architecture_table.with_table(text, "| model |\n| Hill |\n")
        self.assertEqual(new, text.replace("| old |", "| model |\n| Hill |"))
        self.assertNotEqual(new, text)


if __name__ == "__main__":
    unittest.main()
