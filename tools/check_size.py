#!/usr/bin/env python3
"""Reports lines per folder and fails on a file or function that has grown past what one can read.

Limits: files 600 lines (kernels 900), functions 80 lines (kernels 140). Aim for less: 500 and 60 (design, section 12).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LIMIT, KERNEL_FILE_LIMIT = 600, 900
FUNCTION_LIMIT, KERNEL_FUNCTION_LIMIT = 80, 140


def functions(lines):
    """(first line number, length) of every top-level or member function body, by the closing brace's indentation."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            match = re.match(r"^( {0,4})(?!:|namespace|class|struct|enum|union|extern|constexpr \w+ \w+\[)[\w:~<>].*\)[^;]*\{\s*(//.*)?$", line)
            if match:
                start, indent = number, match.group(1)
        elif re.match(rf"^{indent}\}}", line):
            yield start, number - start + 1
            start = None


def main():
    totals, failures = {}, []
    for base in ("src", "include", "tests", "tools", "bench", "training"):
        for path in sorted((ROOT / base).rglob("*")):
            if path.suffix not in {".h", ".cc", ".inl", ".cu", ".py", ".sh"} or not path.is_file():
                continue
            lines = path.read_text(errors="replace").splitlines()
            relative = path.relative_to(ROOT)
            folder = "/".join(relative.parts[: 2 if base == "src" else 1])
            totals[folder] = totals.get(folder, 0) + len(lines)
            if base not in ("src", "include"):
                continue
            kernel = "kernels" in relative.parts
            if len(lines) > (KERNEL_FILE_LIMIT if kernel else FILE_LIMIT):
                failures.append(f"{relative}: {len(lines)} lines")
            if path.suffix in {".h", ".cc", ".inl"}:
                limit = KERNEL_FUNCTION_LIMIT if kernel else FUNCTION_LIMIT
                failures += [f"{relative}:{at}: function of {n} lines (limit {limit})" for at, n in functions(lines) if n > limit]
    for folder, count in sorted(totals.items()):
        print(f"{count:7d}  {folder}")
    print(f"{sum(totals.values()):7d}  in all")
    print("\n".join(failures) if failures else "sizes: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
