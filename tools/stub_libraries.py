#!/usr/bin/env python3
"""Writes stub libraries for the RTMP, LDAP, SSH and Kerberos libraries that libcurl links, so that a wheel need not contain them.

Debian's libcurl speaks many protocols. RTMP and LDAP bring GnuTLS and its dependencies (6 MB), SSH and Kerberos 2 MB. Penstock asks
for http and https without negotiated authentication (src/hub/download/http.cc), so of all their functions libcurl calls only those
of its own start, which take 0 for success. Needs a C compiler and binutils.

Usage: stub_libraries.py OUTPUT_FOLDER   (prints the paths of the libraries that were written)
"""
import re
import subprocess
import sys
from pathlib import Path

REFUSED = re.compile(r"lib(rtmp|ldap|lber|ssh2|gssapi_krb5)\b")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def installed():
    """Returns the path of every installed library by name."""
    return dict(re.findall(r"^\s*(\S+) .*=> (\S+)$", output("ldconfig", "-p"), re.MULTILINE)[::-1])  # the first path of a name takes precedence


def write_stub(soname, symbols, data, folder):
    """symbols: (name, version or "") of each; names in `data` are variables, the others functions."""
    code = "".join(f"void* {name};\n" if name in data else f"void* {name}(void) {{ return 0; }}\n" for name, _ in symbols)
    link = []
    versions = sorted({version for _, version in symbols if version})
    if versions:
        script = folder / f"{soname}.map"
        script.write_text("".join("{} {{ {} }};\n".format(version, " ".join(f"{n};" for n, v in symbols if v == version))
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
            kinds = {name: kind for kind, name in re.findall(r"\b([TBDR]) (\w+)", output("nm", "-D", paths[soname]))}
            data = {name for name, kind in kinds.items() if kind != "T"}
            write_stub(soname, sorted(symbol for symbol in wanted if symbol[0] in kinds), data, folder)
            print(folder / soname)


if __name__ == "__main__":
    main()
