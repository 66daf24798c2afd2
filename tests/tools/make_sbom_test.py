#!/usr/bin/env python3
"""make_sbom.py names whose the archives and headers are that went into a program: Debian's, those compiled here, and Python's."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/make_sbom.py"
NINJA = """rule compile
 command = c++ -std=c++17 -MD -MF $out.d -c $in -o $out $flags
 deps = gcc
 depfile = $out.d
rule link
 command = c++ $in -Wl,-Map=program.map -o program $libraries
build src/a.o: compile a.cc
 flags = -I{site}
build tests/b.o: compile b.cc
build program: link src/a.o
 libraries = {archive} -l:libssl.a
"""
A = """#include <tl/expected.hpp>
#include <theirs/theirs.h>
extern "C" int made_here();
int main() { return tl::expected<int, int>(0).value() + THEIRS + made_here(); }
"""


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


@unittest.skipUnless(shutil.which("dpkg-query"), "files have packages on Debian")
class Sbom(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        self.portable, site = self.folder / "portable", self.folder / "python/site-packages"
        self.write("python/site-packages/theirs/theirs.h", "#define THEIRS 0\n")
        self.write("python/site-packages/theirs-1.5.dist-info/RECORD", "theirs/theirs.h,,\n")
        self.write("python/site-packages/theirs-1.5.dist-info/LICENSE", "Theirs.\n")
        self.write("portable/sources/mine/version", "2:3.0+dfsg-1\n")
        self.write("portable/sources/mine/homepage", "https://mine.invalid\n")
        self.write("portable/sources/mine/copyright", "Format: x\n\nFiles: debian/*\nLicense: GPL-2\n\nFiles: *\nLicense: MIT\n all of it\n")
        self.write("portable/sources/mine/archives", "libmine.a\n")
        self.write("portable/prefix/lib/made.c", "int made_here(void) { return 0; }\n")
        library = self.portable / "prefix/lib"
        run("cc", "-c", "made.c", cwd=library)
        run("ar", "rcsD", "libmine.a", "made.o", cwd=library)
        self.write("build/a.cc", A)
        self.write("build/b.cc", "#include <CLI/Version.hpp>\n")
        self.write("build/build.ninja", NINJA.format(site=site, archive=library / "libmine.a"))
        run("ninja", cwd=self.folder / "build")

    def write(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def sbom(self, *more):
        build = self.folder / "build"
        return subprocess.run([sys.executable, TOOL, "--version", "0.1.0", "--build", build, "--map", build / "program.map", "--portable",
                               self.portable, *more], capture_output=True, text=True, env=os.environ | {"SOURCE_DATE_EPOCH": "86400"})

    def test_what_is_inside(self):
        done = self.sbom("--licences", self.folder / "licences")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = json.loads(done.stdout)
        self.assertEqual((made["bomFormat"], made["metadata"]["timestamp"]), ("CycloneDX", "1970-01-02T00:00:00Z"))
        components = {component["name"]: component for component in made["components"]}
        self.assertEqual(components["mine"]["purl"], "pkg:deb/debian/mine@2%3A3.0%2Bdfsg-1?arch=source")
        self.assertEqual(components["mine"]["licenses"], [{"license": {"name": "MIT"}}])
        self.assertEqual(components["mine"]["properties"][0]["value"], "libmine.a")
        self.assertEqual(components["theirs"]["purl"], "pkg:pypi/theirs@1.5")
        expected = run("dpkg-query", "-W", "-f", "${source:Version}", "libexpected-dev")
        self.assertEqual(components["tl-expected"]["version"], expected)
        self.assertNotIn("openssl", components)  # nothing of it was taken
        self.assertNotIn("cli11", components)    # only a test has it
        self.assertNotIn("glibc", components)    # a system has it
        self.assertIn("MIT", (self.folder / "licences/mine.txt").read_text())
        self.assertEqual((self.folder / "licences/theirs.txt").read_text(), "Theirs.\n")

    def test_files_that_nobody_owns(self):
        self.write("portable/sources/mine/archives", "\n")
        done = self.sbom()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("libmine.a: scripts/portable_libraries does not say whose it is", done.stderr)
        self.write("python/site-packages/theirs-1.5.dist-info/RECORD", "\n")
        self.write("portable/sources/mine/archives", "libmine.a\n")
        done = self.sbom()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("theirs/theirs.h: nobody owns it", done.stderr)

    def test_no_map(self):
        self.write("build/program.map", "nothing\n")
        self.assertIn("program.map: not a map of GNU ld", self.sbom().stderr)


if __name__ == "__main__":
    unittest.main()
