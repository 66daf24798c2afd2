#!/usr/bin/env python3
"""check_size.py measures functions and classes as a reader would, however their signatures are wrapped."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_size  # noqa: E402

HEADER = """namespace a {
class Counter {
 public:
  int count() const { return count_; }
  int add(int n);

 private:
  int count_ = 0;
};
}  // namespace a
"""
SOURCE = """namespace a {
int Counter::add(int n) {
  count_ += n;
  return count_;
}

static const std::vector<std::pair<int, int>>& wrapped(
    const std::string& one,
    const std::string& two) {
  static const std::vector<std::pair<int, int>> list;
  return list;
}

template <class T>
  requires(sizeof(T) > 1)
[[gnu::always_inline]] inline T constrained(T x)
{
  return x;
}
}  // namespace a
"""


class Sizes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        paths = {"counter.h": HEADER, "counter.cc": SOURCE}
        for name, text in paths.items():
            pathlib.Path(folder.name, name).write_text(text)
        self.found = list(check_size.tags([str(pathlib.Path(folder.name, name)) for name in paths]))

    def test_functions_count_from_their_name_to_their_last_brace(self):
        lengths = {tag["name"]: check_size.length(tag) for tag in self.found if tag["kind"] == "function"}
        self.assertEqual(lengths, {"count": 1, "add": 4, "wrapped": 6, "constrained": 4})

    def test_a_class_has_one_definition(self):
        self.assertEqual(list(check_size.same_name_failures(self.found)), [])
        again = [dict(tag, path="other.h") for tag in self.found if tag["kind"] == "class"]
        self.assertEqual(len(list(check_size.same_name_failures(self.found + again))), 1)

    def test_classes_count_their_members_in_other_files(self):
        self.assertEqual(check_size.class_lengths(self.found)["a::Counter"][0], 8 + 4)

    def test_names_of_the_allow_list_exist(self):
        sources = [str(path) for path in (check_size.ROOT / "src").rglob("*") if path.suffix in check_size.SOURCES]
        names = {tag["full_name"] for tag in check_size.tags(sources)}
        self.assertLessEqual(set(check_size.ALLOWED), names, "gone from the code: take it off the list")


if __name__ == "__main__":
    unittest.main()
