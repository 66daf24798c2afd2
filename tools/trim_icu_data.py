#!/usr/bin/env python3
"""Writes a libicudata.so, or a libicudata.a, with only the data that Penstock uses, to keep wheels small.

Debian's has 31 MB of languages, calendars and converters. What stays: normalization forms, properties of characters, and where
graphemes, words and lines break. Needs icupkg (Debian: icu-devtools), binutils and a C compiler.

Usage: trim_icu_data.py [--archive] OUTPUT_FOLDER   (prints the path of the library that was written)
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KEEP = re.compile(r"^([^/]+\.(icu|nrm)|brkitr/(root\.res|[a-z_]+\.brk)|root\.res)$")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def installed_library():
    for line in output("ldconfig", "-p").splitlines():
        found = re.search(r"libicudata\.so\.(\d+) .*=> (\S+)", line)
        if found:
            return Path(found.group(2)).resolve(), found.group(1)
    sys.exit("trim_icu_data: libicudata.so is not installed")


def data_of(library, version):
    """Returns the bytes of the symbol that ICU looks up."""
    for line in output("readelf", "--dyn-syms", "--wide", str(library)).splitlines():
        fields = line.split()
        if fields[-1:] == [f"icudt{version}_dat"]:
            address, size = int(fields[1], 16), int(fields[2], 0)
            break
    else:
        sys.exit(f"trim_icu_data: {library} has no icudt{version}_dat")
    for line in output("readelf", "--sections", "--wide", str(library)).splitlines():
        found = re.match(r"\s*\[\s*\d+\]\s+(\S+)\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)", line)
        if not found:
            continue
        start, offset, length = (int(found.group(i), 16) for i in (2, 3, 4))
        if start <= address < start + length:
            place = offset + address - start
            return library.read_bytes()[place:place + (size or length - (address - start))]
    sys.exit(f"trim_icu_data: {library}: no section has icudt{version}_dat")


def main():
    folder = Path(sys.argv[-1])
    folder.mkdir(parents=True, exist_ok=True)
    library, version = installed_library()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        whole = scratch / f"icudt{version}l.dat"
        whole.write_bytes(data_of(library, version))
        items = output("icupkg", "-l", str(whole)).split()
        (scratch / "remove.txt").write_text("".join(f"{item}\n" for item in items if not KEEP.match(item)))
        trimmed = scratch / "trimmed" / whole.name  # icupkg takes the package's name from the file's
        trimmed.parent.mkdir()
        subprocess.run(["icupkg", "--ignore-deps", "-r", str(scratch / "remove.txt"), str(whole), str(trimmed)], check=True)
        source = scratch / "data.c"
        source.write_text(f'''__asm__(".section .rodata\\n.globl icudt{version}_dat\\n.type icudt{version}_dat, @object\\n"
        ".balign 16\\nicudt{version}_dat:\\n.incbin \\"{trimmed}\\"\\n.size icudt{version}_dat, .-icudt{version}_dat\\n"
        ".section .note.GNU-stack,\\"\\",@progbits\\n.text");\n''')
        if "--archive" in sys.argv[1:-1]:
            name = "libicudata.a"
            subprocess.run(["cc", "-c", "-o", str(scratch / "data.o"), str(source)], check=True)
            subprocess.run(["ar", "rcsD", str(folder / name), str(scratch / "data.o")], check=True)
        else:
            name = f"libicudata.so.{version}"
            subprocess.run(["cc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", str(folder / name), str(source)], check=True)
    print(folder / name)


if __name__ == "__main__":
    main()
