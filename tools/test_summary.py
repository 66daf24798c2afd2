#!/usr/bin/env python3
"""The end of scripts/test: what failed, what was skipped for which reason, and how many passed.

    tools/test_summary.py LOG...        ctest's LastTest.log of one or more runs; a later one counts where a test ran again

Counted are GoogleTest's tests with their parameters, which ctest runs together, and the tests of Python's unittest; a test of ctest
that prints neither counts as one.
"""
import collections
import pathlib
import re
import sys


def results(lines):
    """Yields (what ctest calls it, test, "passed", "failed" or "skipped", reason of the latter)."""
    before = named = suite = ""
    singles, told = 0, False  # tests inside of one of ctest's; whether one of them said that it failed
    for line in lines:
        if found := re.match(r"\d+/\d+ Test: (.*)", line):
            suite, singles, told = found[1], 0, False
        elif found := re.match(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?),? .*ms\)$", line):
            singles, told = singles + 1, told or found[1] == "FAILED"
            yield suite, found[2], {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[found[1]], before
        elif line.startswith("SKIP_RETURN_CODE=") or line == "Test Skipped.":
            singles += 1
            yield suite, suite, "skipped", f"all of {suite}, which says why"
        elif (line == "Test Passed." and singles == 0) or (line == "Test Failed." and not told):
            yield suite, suite, line[5:-1].lower(), ""
        if found := re.match(r"\w+ \((\S+)\)", line):
            named = found[1]  # a docstring may stand between the name and what became of the test
        if found := re.search(r"(?:\.\.\. |^)(ok|FAIL|ERROR|skipped ['\"](.*)['\"])$", line):
            if named:
                singles, told = singles + 1, told or found[1] in ("FAIL", "ERROR")
                yield suite, named, {"ok": "passed", "FAIL": "failed", "ERROR": "failed"}.get(found[1], "skipped"), found[2] or ""
                named = ""
        before = line.strip() or before


def summary(texts):
    """The lines of the summary of logs, the oldest first."""
    tests = {}
    for text in texts:
        found = list(results(text.splitlines()))
        again = {suite for suite, *_ in found}
        tests = {key: value for key, value in tests.items() if key[0] not in again}
        tests |= {(suite, test): (outcome, reason) for suite, test, outcome, reason in found}
    failed = sorted({f"{suite}: {test}" if test != suite else suite for (suite, test), (outcome, _) in tests.items() if outcome == "failed"})
    skipped = collections.Counter(reason for outcome, reason in tests.values() if outcome == "skipped")
    passed = sum(outcome == "passed" for outcome, _ in tests.values())
    if failed:
        yield "failed:"
        yield from (f"  {name}" for name in failed)
    if skipped:
        yield "skipped, and why:"
        yield from (f"  {count} x {reason}" for reason, count in skipped.most_common())
    yield f"{passed:,} passed, {len(failed):,} failed, {sum(skipped.values()):,} skipped"


def main():
    logs = [path for path in map(pathlib.Path, sys.argv[1:]) if path.exists()]
    print("\n".join(summary([path.read_text(errors="replace") for path in logs])))


if __name__ == "__main__":
    main()
