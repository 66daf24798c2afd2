#!/usr/bin/env python3
"""Every piece of C++ in docs/guide/library.md stands in examples/guide.cc, which tests/e2e/install.sh builds and runs."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class LibraryGuide(unittest.TestCase):
    def test_its_code_is_that_of_the_example(self):
        program = (ROOT / "examples" / "guide.cc").read_text()
        blocks = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs" / "guide" / "library.md").read_text(), re.S)
        self.assertGreater(len(blocks), 5)
        for block in blocks:
            self.assertIn(block, program)


if __name__ == "__main__":
    unittest.main()
