#!/usr/bin/env python3
"""Writes README's table of architectures from the output of `penstock models --architectures`.

Usage: architecture_table.py [--check] [PROGRAM]      PROGRAM: build/release/penstock. --check: writes nothing; exit code 1 if the table differs.
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- architectures: tools/architecture_table.py -->", "<!-- end of architectures -->"


def with_table(text, table):
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table.strip()}\n{text[end:]}"


def main():
    programs = [argument for argument in sys.argv[1:] if argument != "--check"]
    program = programs[0] if programs else ROOT / "build/release/penstock"
    table = subprocess.run([program, "models", "--architectures"], check=True, capture_output=True, text=True).stdout
    path = ROOT / "README.md"
    text = path.read_text()
    new = with_table(text, table)
    if "--check" not in sys.argv[1:]:
        path.write_text(new)
    elif new != text:
        sys.exit("README.md: the table of architectures is not the program's: run tools/architecture_table.py")


if __name__ == "__main__":
    main()
