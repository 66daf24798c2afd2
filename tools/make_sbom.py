#!/usr/bin/env python3
"""Prints the bill of materials of a release as CycloneDX JSON: the code of others that is inside.

What is inside: members of archives that the linker took (its maps) and headers that were compiled (ninja's records of builds). Whose they
are: Debian's database of packages says it, scripts/portable_libraries of what it compiled, and Python's lists of what is installed. A file
that nobody owns is an error. Headers of what a system has anyway (glibc, Linux, Python) or of what is only loaded (OpenMPI) do not count.

Usage: make_sbom.py [--portable FOLDER] [--licences FOLDER] [--version VERSION] --build FOLDER... --map FILE...
"""
import argparse
import csv
import datetime
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

SOURCE = Path(__file__).resolve().parent.parent
HEADERS_ONLY = re.compile(r"^(glibc|linux|openmpi|python3\.\d+)$")
PYTHON_HEADER = re.compile(r"/include/python3\.\d+/")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def linked(path):
    """Archives of which a link took members."""
    found = set()
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(("Discarded input sections", "Memory Configuration")):
                return found
            member = re.match(r"(\S+\.a)\([^)]*\)", line)
            if member:
                found.add(member[1])
    raise SystemExit(f"make_sbom: {path}: not a map of GNU ld")


def compiled(build):
    """Headers of the program's and the module's objects in a folder of ninja's."""
    found, wanted = set(), False
    for line in output("ninja", "-C", str(build), "-t", "deps").splitlines():
        if line.startswith("    "):
            if wanted:
                found.add(line.strip())
        else:
            wanted = line.startswith(("src/", "cuda/"))
    return found


def licence(copyright_file):
    """What most of a package is under, if its description of licences is one that programs read."""
    text = copyright_file.read_text(errors="replace")
    if not text.startswith("Format:"):
        return None
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(r"(?m)^Files: *\*\s*$", paragraph):
            named = re.search(r"(?m)^License: *(\S.*)$", paragraph)
            return named and named[1].strip()
    return None


class Component:
    def __init__(self, kind, name, version, homepage="", terms=None, qualifier=""):
        self.name, self.version, self.homepage = name, version, homepage
        self.terms = terms if terms and terms.is_file() else None  # the file with the licences
        self.archives = set()
        self.purl = f"pkg:{kind}/{quote(name)}@{quote(version)}{qualifier}"

    def described(self):
        made = {"type": "library", "bom-ref": self.purl, "name": self.name, "version": self.version, "purl": self.purl}
        named = licence(self.terms) if self.terms else None
        if named:
            made["licenses"] = [{"license": {"name": named}}]
        if self.homepage:
            made["externalReferences"] = [{"type": "website", "url": self.homepage}]
        made["properties"] = [{"name": "penstock:linked", "value": ", ".join(sorted(self.archives)) or "compiled"}]
        return made


class Owners:
    def __init__(self, portable, own):
        self.own = [SOURCE, *(folder.resolve() for folder in own)]
        self.portable = portable.resolve() if portable else None
        self.components = {}

    def add(self, component, archive):
        component = self.components.setdefault(component.purl, component)
        if archive:
            component.archives.add(archive)

    def made_here(self, name):
        folder = self.portable / "sources" / name
        version, homepage = ((folder / part).read_text().strip() for part in ("version", "homepage"))
        return Component("deb/debian", name, version, homepage, folder / "copyright", "?arch=source")

    def of_portable(self, path):
        if self.portable / "sysroot" in path.parents:
            return "glibc"
        for listed in sorted(self.portable.glob("sources/*/archives")):
            if path.name in listed.read_text().split():
                return listed.parent.name
        return None

    @functools.cache
    def of_package(self, package):
        source, version, homepage = output("dpkg-query", "-W", "-f", "${source:Package}\n${source:Version}\n${Homepage}", package).split("\n")
        if HEADERS_ONLY.match(source):
            return None
        return Component("deb/debian", source, version, homepage, Path("/usr/share/doc") / package.split(":")[0] / "copyright", "?arch=source")

    @functools.cache
    def of_distribution(self, site):
        """Files below a folder of Python's packages: {path: component}."""
        owned = {}
        for record in site.glob("*.dist-info/RECORD"):
            name, version = record.parent.name[: -len(".dist-info")].rsplit("-", 1)
            terms = next(iter(sorted(record.parent.rglob("LICEN[CS]E*"))), None)
            component = Component("pypi", name, version, "", terms)
            with open(record, newline="", encoding="utf-8") as rows:
                owned.update({(site / row[0]).resolve(): component for row in csv.reader(rows) if row})
        return owned

    @functools.cache
    def of_cuda(self, home):
        version = re.search(r"V([\d.]+)", output(str(home / "bin/nvcc"), "--version"))[1]
        return Component("generic", "cuda-runtime", version, "https://developer.nvidia.com/cuda-toolkit", home / "EULA.txt")

    def of_other(self, path):
        """Of a file that is in no package of Debian's."""
        for folder in path.parents:
            if folder.name == "site-packages":
                return self.of_distribution(folder).get(path)
            if (folder / "bin/nvcc").exists():
                return self.of_cuda(folder)
        return None

    def take(self, archives, headers):
        paths = {Path(name).resolve(): True for name in archives}
        paths.update({path: False for path in {Path(name).resolve() for name in headers} - paths.keys()})
        elsewhere = []
        for path, archive in paths.items():
            if self.portable and path.is_relative_to(self.portable) and path.relative_to(self.portable).parts[0] in ("prefix", "sysroot"):
                owner = self.of_portable(path) if archive else "headers"
                if owner is None:
                    raise SystemExit(f"make_sbom: {path}: scripts/portable_libraries does not say whose it is")
                if archive:
                    self.add(self.made_here(owner), path.name)
            elif "site-packages" in path.parts or not any(folder in path.parents for folder in self.own):
                elsewhere.append(path)
        packages = self.packages(elsewhere)
        for path in elsewhere:
            archive = path.name if paths[path] else None
            if path in packages:
                component = self.of_package(packages[path])
            elif PYTHON_HEADER.search(str(path)):
                component = None
            else:
                component = self.of_other(path)
                if component is None:
                    raise SystemExit(f"make_sbom: {path}: nobody owns it")
            if component:
                self.add(component, archive)

    @staticmethod
    def packages(paths):
        """{path: Debian's package}, of those that are in one."""
        found = {}
        paths = sorted(str(path) for path in paths)
        for begin in range(0, len(paths), 500):
            done = subprocess.run(["dpkg-query", "-S", *paths[begin:begin + 500]], capture_output=True, text=True)
            for line in done.stdout.splitlines():
                names, _, path = line.partition(": ")
                if not line.startswith("diversion"):
                    found[Path(path)] = names.split(",")[0]
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, action="append", required=True, help="a folder of ninja's whose objects are inside")
    parser.add_argument("--map", type=Path, action="append", required=True, help="what ld -Map wrote")
    parser.add_argument("--portable", type=Path, help="what scripts/portable_libraries made")
    parser.add_argument("--licences", type=Path, help="where the licences of all of it are copied")
    parser.add_argument("--version", default="0")
    options = parser.parse_args()
    owners = Owners(options.portable, options.build)
    archives, headers = set(), set()
    for path in options.map:
        archives |= {path.parent / name for name in linked(path)}
    for build in options.build:
        headers |= {build / name for name in compiled(build)}
    owners.take(archives, headers)
    components = [owners.components[purl] for purl in sorted(owners.components)]
    if options.licences:
        shutil.rmtree(options.licences, ignore_errors=True)
        options.licences.mkdir(parents=True)
        for component in components:
            if component.terms:
                shutil.copyfile(component.terms, options.licences / f"{component.name}.txt")
    made = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    whole = {"type": "application", "bom-ref": "penstock", "name": "penstock", "version": options.version}
    json.dump({"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
               "metadata": {"timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": whole},
               "components": [component.described() for component in components],
               "dependencies": [{"ref": "penstock", "dependsOn": [component.purl for component in components]}]}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
