#!/usr/bin/env python3
"""Checks nvcc's code for the kernels in src/ops/cuda/kernels: no register spills, no stack frames, code of limited size for every
architecture, and wgmma instructions (HGMMA) in the kernels that are written for them. Prints the compile times.

Usage: check_cuda_kernels.py BUILD/cuda   (the folder with NAME.o and NAME.ptxas)
Exit code 1 and one line per violation.
"""
import pathlib
import re
import shutil
import subprocess
import sys

MAX_OBJECT_BYTES = 10 << 20
ARCHITECTURES = {"sm_80", "sm_90a"}
# Kernels that multiply by wgmma on sm_90a: what their names contain. Looking at their instructions needs cuobjdump on the path (the
# wheels nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm have it).
NEEDS_HGMMA = ("WideProduct", "WideExpertProduct", "WideGatedProduct", "FlashWide")
COMPILE_SECONDS = re.compile(r"^nvcc took ([\d.]+) s of CPU$", re.MULTILINE)
FUNCTION = re.compile(r"^\s*Function : (\S+)|^\s*\.section\s+\.text\.([^,\s]+)")
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
SERIAL = re.compile(r"Potential Performance Loss: (wgmma\S* instructions are serialized .* in the function '\S+')")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def kernels_of(report):
    """Returns (kernel, architecture, frame bytes, spill bytes) from the assembler's output."""
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


def without_hgmma(sass, wanted):
    """Returns (wanted name, kernel) for each kernel of a listing that lacks HGMMA, and (wanted name, None) for names without a kernel."""
    has, kernel = {}, None
    for line in sass.splitlines():
        function = FUNCTION.search(line)
        if function:
            kernel = function[1] or function[2]
            has.setdefault(kernel, False)
        elif kernel and "HGMMA" in line:
            has[kernel] = True
    for name in wanted:
        found = [kernel for kernel in has if name in kernel]
        if not found:
            yield name, None
        for kernel in found:
            if not has[kernel]:
                yield name, kernel


def hgmma_violations(folder, wanted):
    if not wanted:
        return
    tool = shutil.which("cuobjdump")
    if tool is None:
        print(f"cuobjdump is not here: cannot tell whether {', '.join(wanted)} have HGMMA")
        return
    sass = ""
    for path in sorted(folder.glob("*.o")):
        shown = subprocess.run([tool, "-sass", "-arch", "sm_90a", str(path)], capture_output=True, text=True)
        sass += shown.stdout
        if shown.returncode:
            yield f"{path.name}: cuobjdump failed: {shown.stderr.strip()}"
    for name, kernel in without_hgmma(sass, wanted):
        yield f"{name}: no such kernel" if kernel is None else f"{kernel} on sm_90a: no HGMMA"


def violations(folder, needs_hgmma=NEEDS_HGMMA):
    reports = sorted(folder.glob("*.ptxas"))
    if not reports:
        yield f"{folder}: no *.ptxas: nothing was compiled by nvcc"
    n_kernels, seconds = 0, 0.0
    for report in reports:
        seen = set()
        text = report.read_text()
        seconds += sum(map(float, COMPILE_SECONDS.findall(text)))
        for kernel, architecture, stack, spills in kernels_of(text):
            n_kernels += 1
            seen.add(architecture)
            if stack or spills:
                yield f"{report.stem}: {kernel} on {architecture}: {stack} bytes of stack, {spills} bytes of spills"
        for slow in SERIAL.findall(text):
            yield f"{report.stem}: {slow}"
        for missing in sorted(ARCHITECTURES - seen):
            yield f"{report.stem}: no code for {missing}"
    total = sum(path.stat().st_size for path in folder.glob("*.o"))
    print(f"{n_kernels} kernels in {len(reports)} files, objects of {total / 1e6:.2f} MB; nvcc took {seconds:.0f} s of CPU when it made "
          "them (next to nothing of what ccache had)")
    if total > MAX_OBJECT_BYTES:
        yield f"{folder}: objects of {total} bytes, at most {MAX_OBJECT_BYTES}"
    yield from hgmma_violations(folder, needs_hgmma)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "CUDA kernels: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
