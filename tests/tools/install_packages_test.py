#!/usr/bin/env python3
"""scripts/install_packages on systems that are not there: stand-ins for the package managers write down how they are called."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/install_packages"
# Commands of the system that the script itself uses.
TOOLS = ("bash", "env", "grep", "id")


class InstallPackages(unittest.TestCase):
    def run_with(self, commands, *groups):
        """(exit code, stderr, calls) with these commands {name: body in shell} and no others."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for tool in TOOLS:
                (folder / tool).symlink_to(shutil.which(tool))
            for name, body in commands.items():
                (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >>"{folder}/calls"\n{body}\n')
                (folder / name).chmod(0o755)
            done = subprocess.run([folder / "bash", SCRIPT, *groups], env={"PATH": str(folder)}, capture_output=True, text=True)
            calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
            return done.returncode, done.stderr, calls

    def debian(self, known, installed=""):
        """A system that knows packages whose names match a pattern of bash."""
        return {"apt-get": "", "sudo": '"$@"', "dpkg-query": f'[[ "${{@: -1}}" == @({installed or "-"}) ]] && echo "install ok installed"',
                "apt-cache": f'[[ "${{@: -1}}" == @({known}) ]] && echo "Package: x"'}

    def installed(self, calls):
        [line] = [line for line in calls if line.startswith("apt-get install")]
        return [word for word in line.split()[2:] if not word.startswith("-")]

    def test_what_is_missing_is_installed(self):
        code, _, calls = self.run_with(self.debian("*", "debootstrap|git"), "image")
        self.assertEqual((code, self.installed(calls)), (0, ["rsync", "python3"]))
        code, _, calls = self.run_with(self.debian("*", "*"), "image")
        self.assertEqual((code, [line for line in calls if "apt" in line]), (0, []))

    def test_other_names_of_other_releases(self):
        code, _, calls = self.run_with(self.debian("!(*1.81*)"), "build")
        self.assertEqual(code, 0)
        self.assertIn("libboost-dev", self.installed(calls))
        self.assertNotIn("libboost1.81-dev", self.installed(calls))

    def test_what_no_list_has_is_named(self):
        code, said, calls = self.run_with(self.debian("!(rsync|debootstrap)"), "image")
        self.assertEqual(code, 1)
        self.assertIn("have none of: debootstrap rsync (Debian 12's names)", said)
        self.assertEqual([line for line in calls if "install" in line and "apt" in line], [])

    def test_other_systems_are_told_their_own_names(self):
        for manager, words in (("dnf", "dnf install gcc-c++ cmake"), ("pacman", "pacman -S gcc cmake"), ("apk", "apk add g++ cmake"), ("brew", "brew install cmake")):
            code, said, calls = self.run_with({manager: ""}, "build")
            self.assertEqual((code, calls), (0, []), "what is there is not known: nothing is installed, and cmake says what it misses")
            self.assertIn(words, said)
        code, said, _ = self.run_with({}, "image")
        self.assertEqual(code, 0)
        self.assertIn("debootstrap rsync git python3", said)


if __name__ == "__main__":
    unittest.main()
