#!/usr/bin/env python3
"""Checks what nvcc made of the kernels in src/ops/cuda/kernels: no register spills, no stack frames, code for every architecture, and
not too much of it.

Usage: check_cuda_kernels.py BUILD/cuda   (the folder with NAME.o and NAME.ptxas)
Exit code 1 and one line per violation.
"""
import pathlib
import re
import sys

MAX_OBJECT_BYTES = 10 << 20
ARCHITECTURES = {"sm_80", "sm_90a"}
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def kernels_of(report):
    """(kernel, architecture, frame bytes, spill bytes) of what the assembler says"""
    kernel = None
    for line in report.splitlines():
        entry = ENTRY.search(line)
        if entry:
            kernel = entry.groups()
        frame = FRAME.search(line)
        if frame and kernel:
            stack, stores, loads = map(int, frame.groups())
            yield (*kernel, stack, stores + loads)
            kernel = None


def violations(folder):
    reports = sorted(folder.glob("*.ptxas"))
    if not reports:
        yield f"{folder}: no *.ptxas: nothing was compiled by nvcc"
    n_kernels = 0
    for report in reports:
        seen = set()
        for kernel, architecture, stack, spills in kernels_of(report.read_text()):
            n_kernels += 1
            seen.add(architecture)
            if stack or spills:
                yield f"{report.stem}: {kernel} on {architecture}: {stack} bytes of stack, {spills} bytes of spills"
        for missing in sorted(ARCHITECTURES - seen):
            yield f"{report.stem}: no code for {missing}"
    total = sum(path.stat().st_size for path in folder.glob("*.o"))
    print(f"{n_kernels} kernels in {len(reports)} files, objects of {total / 1e6:.2f} MB")
    if total > MAX_OBJECT_BYTES:
        yield f"{folder}: objects of {total} bytes, at most {MAX_OBJECT_BYTES}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "CUDA kernels: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
