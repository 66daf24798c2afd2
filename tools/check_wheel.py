#!/usr/bin/env python3
"""Checks a wheel's size, contents and dependencies. Usage: check_wheel.py FILE"""
import sys
import zipfile

MEGABYTE = 1e6
MOST, MOST_WITHOUT_MODELS = 46 * MEGABYTE, 28 * MEGABYTE
WANTED = ["penstock/__init__.py", "penstock/py.typed", "penstock/_core.pyi", "penstock/models/penstock-stories-15m-q8_0.gguf",
          "penstock/lib/libpenstock.so", "penstock/lib/cmake/penstock/penstockConfig.cmake", "penstock/include/penstock/llm.h",
          "penstock/include/tl/expected.hpp"]


def main():
    wheel = zipfile.ZipFile(sys.argv[1])
    names = wheel.namelist()
    wrong = [f"{name} is not in it" for name in WANTED if name not in names]
    whole = sum(info.compress_size for info in wheel.infolist())
    models = sum(info.compress_size for info in wheel.infolist() if info.filename.startswith("penstock/models/"))
    print(f"{sys.argv[1]}: {whole / MEGABYTE:.1f} MB, {(whole - models) / MEGABYTE:.1f} MB without models")
    if whole > MOST or whole - models > MOST_WITHOUT_MODELS:
        wrong.append(f"expected at most {MOST / MEGABYTE:.0f} MB, and {MOST_WITHOUT_MODELS / MEGABYTE:.0f} MB without models")
    metadata = next(wheel.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    needed = [line.split(":", 1)[1].strip() for line in metadata.splitlines()
              if line.startswith("Requires-Dist:") and "extra ==" not in line]
    if [name for name in needed if not name.startswith("numpy")]:
        wrong.append(f"expected to depend on numpy only, got {', '.join(needed)}")
    if "manylinux" not in sys.argv[1]:
        wrong.append("its libraries are not inside (auditwheel)")
    for line in wrong:
        print(f"{sys.argv[1]}: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
