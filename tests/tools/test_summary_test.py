#!/usr/bin/env python3
"""test_summary.py counts what GoogleTest, unittest and ctest say, and tells why tests were skipped."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import test_summary  # noqa: E402

GOOGLE = """1/4 Test: Ops.All
[ RUN      ] A.One
[       OK ] A.One (3 ms)
[ RUN      ] A.Two/gemma3
a_test.cc:12: Skipped
no such device

[  SKIPPED ] A.Two/gemma3 (0 ms)
[ RUN      ] A.Three
[  FAILED  ] A.Three, where GetParam() = 3 (1 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.Two/gemma3
Test Failed.
"""
PYTHON = """2/4 Test: e2e.a_e2e
test_one (__main__.A.test_one) ... ok
test_two (__main__.A.test_two)
Why it is so. ... skipped 'needs a GPU'
test_three (__main__.A.test_three)
A line. ... ok
Test Passed.
3/4 Test: e2e.b_e2e
no agents: run scripts/install_agents
SKIP_RETURN_CODE=77
Test Skipped.
4/4 Test: e2e.install
Test Passed.
"""


class Summary(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(list(test_summary.summary([GOOGLE + PYTHON])), [
            "failed:", "  Ops.All: A.Three", "skipped, and why:", "  1 x no such device", "  1 x needs a GPU",
            "  1 x all of e2e.b_e2e, which says why", "4 passed, 1 failed, 3 skipped"])

    def test_a_second_run_counts(self):
        again = "1/1 Test: Ops.All\n[       OK ] A.One (3 ms)\n[       OK ] A.Three (1 ms)\nTest Passed.\n"
        self.assertEqual(list(test_summary.summary([GOOGLE, again])), ["2 passed, 0 failed, 0 skipped"])


if __name__ == "__main__":
    unittest.main()
