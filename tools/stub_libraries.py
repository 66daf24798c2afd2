#!/usr/bin/env python3
"""Writes libraries that refuse RTMP and LDAP in place of those that libcurl links: for a wheel, which carries its libraries.

Debian's libcurl speaks many protocols, and these two bring GnuTLS and what that needs, 6 MB. Penstock asks for http and https only
(src/hub/download/http.cc), so no function of theirs is ever called. Needs a C compiler and binutils.

Usage: stub_libraries.py OUTPUT_FOLDER   (prints the paths of the libraries that were written)
"""
import re
import subprocess
import sys
from pathlib import Path

REFUSED = re.compile(r"lib(rtmp|ldap|lber)\b")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def installed():
    """The path of every library, by its name."""
    return dict(re.findall(r"^\s*(\S+) .*=> (\S+)$", output("ldconfig", "-p"), re.MULTILINE)[::-1])  # the first of a name counts


def write_stub(soname, functions, folder):
    """`functions`: (name, version or "") of each."""
    code = "".join(f"void* {name}(void) {{ return 0; }}\n" for name, _ in functions)
    link = []
    versions = sorted({version for _, version in functions if version})
    if versions:
        script = folder / f"{soname}.map"
        script.write_text("".join("{} {{ {} }};\n".format(version, " ".join(f"{n};" for n, v in functions if v == version))
                                  for version in versions))
        link = [f"-Wl,--version-script={script}"]
    subprocess.run(["cc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", *link, "-x", "c", "-", "-o", str(folder / soname)],
                   input=code, text=True, check=True)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    paths = installed()
    curl = paths["libcurl.so.4"]
    wanted = set(re.findall(r"\bU (\w+)(?:@(\S+))?$", output("nm", "-D", "--with-symbol-versions", curl), re.MULTILINE))
    for soname in re.findall(r"NEEDED.*\[(\S+)\]", output("readelf", "-d", curl)):
        if REFUSED.match(soname):
            theirs = set(re.findall(r"\bT (\w+)", output("nm", "-D", paths[soname])))
            write_stub(soname, sorted(symbol for symbol in wanted if symbol[0] in theirs), folder)
            print(folder / soname)


if __name__ == "__main__":
    main()
