#!/usr/bin/env python3
"""check_layers.py sees includes that point the wrong way: between layers, and between the rooms of one."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers  # noqa: E402

DESIGN = """Dependency rule:
```
base: -                    text: base
server: base text
```
```
inside server: http < keys/data < api < keys < server
```
"""


class Layers(unittest.TestCase):
    def found(self, path, include, code=""):
        with tempfile.TemporaryDirectory() as folder:
            check_layers.ROOT, check_layers.DESIGN = pathlib.Path(folder), pathlib.Path(folder, "docs", "design.md")
            for name, text in ((check_layers.DESIGN, DESIGN), (check_layers.ROOT / "src" / path, f'#include "{include}"\n{code}')):
                name.parent.mkdir(parents=True, exist_ok=True)
                name.write_text(text)
            return list(check_layers.violations())

    def test_a_layer_includes_what_its_row_lists(self):
        self.assertEqual(self.found("text/a.cc", "base/b.h"), [])
        self.assertEqual(self.found("server/http/a.cc", "text/b.h"), [])
        self.assertEqual(len(self.found("text/a.cc", "server/b.h")), 1)
        self.assertEqual(len(self.found("other/a.cc", "base/b.h")), 1)

    def test_a_room_includes_those_before_it(self):
        self.assertEqual(self.found("server/api/a.cc", "server/http/b.h"), [])
        self.assertEqual(self.found("server/api/a.cc", "server/api/b.h"), [])
        self.assertEqual(self.found("server/http/a.cc", "server/other/b.h"), [])
        (line,) = self.found("server/http/a.cc", "server/api/b.h")
        self.assertIn("src/server/http/a.cc:1: server/http may not include server/api", line)

    def test_a_folder_of_a_room_may_be_a_room(self):
        self.assertEqual(self.found("server/api/a.cc", "server/keys/data/b.h"), [])
        self.assertEqual(self.found("server/keys/a.cc", "server/api/b.h"), [])
        for path, include in (("server/api/a.cc", "server/keys/b.h"), ("server/keys/data/a.cc", "server/keys/b.h")):
            (line,) = self.found(path, include)
            self.assertIn("may not include server/keys (inside", line)

    def test_files_outside_of_rooms_are_one_too(self):
        self.assertEqual(self.found("server/a.cc", "server/api/b.h"), [])
        (line,) = self.found("server/api/a.cc", "server/b.h")
        self.assertIn("server/api may not include server (inside", line)

    def test_nothing_but_base_asks_the_locale(self):
        for code in ("c = std::tolower(c);", "if (std::isalnum(c)) {}", "x = strtod(text, &end);", "float x = std::stof(text);", "std::strftime(a, b, c, d);"):
            self.assertEqual(len(self.found("text/a.cc", "base/b.h", code)), 1, code)
            self.assertEqual(self.found("base/a.cc", "base/b.h", code), [])
        self.assertEqual(self.found("text/a.cc", "base/b.h", 'locale_free_strtod(a, b); fail("strftime() argument"); std::stoi(a);  // std::tolower()'), [])

    def test_files_are_opened_by_base_alone(self):
        for code in ("std::ifstream in(path);", "int f = ::open(path, O_RDONLY);", 'FILE* f = fopen(path, "r");'):
            self.assertEqual(len(self.found("text/a.cc", "base/b.h", code)), 1, code)
            self.assertEqual(self.found("base/a.cc", "base/b.h", code), [])
        self.assertEqual(self.found("text/a.cc", "base/b.h", "open(path, O_RDONLY | O_DIRECTORY); std::ofstream out(path);  // no ifstream"), [])


if __name__ == "__main__":
    unittest.main()
