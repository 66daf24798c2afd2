#!/usr/bin/env python3
"""The examples of docs/add-a-thing.md touch what docs/design.md says and work; check_touches.py sees where one does not."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_touches  # noqa: E402
from check_touches import Violation, check_row, with_row  # noqa: E402


class Touches(unittest.TestCase):
    def test_examples(self):
        build = pathlib.Path(os.environ["PENSTOCK_BUILD"])
        self.assertEqual(list(check_touches.check_all([], build)), [])

    def test_files_that_the_table_does_not_name(self):
        places, listed = check_touches.table()["drafter"]
        check_row((places, listed), ["src/draft/repeat.cc"], listed)
        for new, changed in ((["src/draft/repeat.cc"], listed + ["src/engine/open.cc"]),
                             (["src/draft/repeat.cc"], []),
                             (["src/draft/repeat.cc", "src/draft/repeat.h"], listed),
                             (["src/engine/repeat.cc"], listed),
                             ([], listed)):
            with self.assertRaises(Violation):
                check_row((places, listed), new, changed)
        with self.assertRaises(Violation):
            check_row((None, ["src/sampling/steps.cc"]), ["src/sampling/new.cc"], ["src/sampling/steps.cc"])

    def test_a_place_that_is_gone_or_ambiguous(self):
        self.assertEqual(with_row("a {\n};\n", "after", "a {", "  1,\n", "f"), "a {\n  1,\n};\n")
        self.assertEqual(with_row("a {\n};\n", "before", "}", "  1,\n", "f"), "a {\n  1,\n};\n")
        for text in ("b {\n", "a {\na {\n"):
            with self.assertRaises(Violation):
                with_row(text, "after", "a {", "1\n", "f")


if __name__ == "__main__":
    unittest.main()
