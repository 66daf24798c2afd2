#!/usr/bin/env python3
"""The end of scripts/test: how many tests ran, and what was skipped for which reason.

    tools/test_summary.py LOG...        ctest's LastTest.log of one or more runs

Counted are GoogleTest's tests with their parameters, which ctest runs together, and the tests of Python's unittest.
"""
import collections
import pathlib
import re
import sys


def skipped(lines):
    """(test, reason) for each."""
    before = named = ""
    for line in lines:
        if found := re.match(r"\w+ \((\S+)\)", line):
            named = found[1]  # a docstring may stand between the name and what became of the test
        if found := re.match(r"\[  SKIPPED \] (\S+) .*ms\)$", line):
            yield found[1], before
        elif found := re.search(r" skipped ['\"](.*)['\"]$", line):
            yield named, found[1]
        elif found := re.match(r"\d+/\d+ Test: (.*)", line):
            suite = found[1]
        elif line.startswith("SKIP_RETURN_CODE="):
            yield suite, f"all of {suite}, which says why"
        before = line


def main():
    ran, reasons = set(), {}
    for path in map(pathlib.Path, sys.argv[1:]):
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        ran |= {found[1] for line in lines if (found := re.match(r"\d+/\d+ Test: (.*)", line))}
        reasons |= dict(skipped(lines))
    print(f"{len(ran)} tests of ctest ran, in which {len(reasons)} were skipped" + (":" if reasons else ""))
    for reason, count in collections.Counter(reasons.values()).most_common():
        print(f"  {count} x {reason}")


if __name__ == "__main__":
    main()
