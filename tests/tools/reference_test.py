#!/usr/bin/env python3
"""The pages of docs/reference are what the program says; tools/make_reference.py notices one that is not."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release"), "penstock")
sys.path.insert(0, str(ROOT / "tools"))
import make_reference  # noqa: E402


class Reference(unittest.TestCase):
    def test_pages_are_the_programs(self):
        done = subprocess.run([sys.executable, ROOT / "tools/make_reference.py", "--check", "--program", PROGRAM], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_pictures_are_those_of_the_script(self):
        done = subprocess.run([sys.executable, ROOT / "tools/draw_server_docs.py", "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_every_page_is_made(self):
        self.assertEqual({path.stem for path in make_reference.FOLDER.glob("*.md")}, set(make_reference.PAGES))

    def test_flags_are_read_as_they_stand(self):
        rows = {row[0]: row for rows in make_reference.groups_of(make_reference.help_of(PROGRAM, "serve")).values() for row in rows}
        self.assertEqual(rows["--port"][1:], ("UINT [0 - 65535]", "8000", "port to listen on; 0 is any free one"))
        self.assertEqual(rows["--lora-modules"][1:3], ("NAME=PATH ...", ""))
        self.assertEqual(rows["--state-snapshot-interval"][2], "0")
        self.assertEqual([names for names, *_, meaning in rows.values() if not meaning], [])

    def test_every_command_is_there(self):
        text = (make_reference.FOLDER / "flags.md").read_text()
        for name, *_ in make_reference.groups_of(make_reference.help_of(PROGRAM, ""))["Subcommands"]:
            self.assertIn(f"\n## penstock {name}\n", text)

    def test_an_unknown_name_is_noticed(self):
        with self.assertRaises(SystemExit) as raised:
            make_reference.same({"command", "news"}, {"command"}, "mcp_config.cc")
        self.assertIn("news", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
