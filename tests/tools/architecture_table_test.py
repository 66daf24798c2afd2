#!/usr/bin/env python3
"""README's table of architectures is that of the list, and architecture_table.py reads both ways of writing a row."""
import pathlib
import subprocess
import sys
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import architecture_table  # noqa: E402

SOURCE = """
constexpr std::string_view kHill[] = {"hill", "HillForCausalLM"};
constexpr std::string_view kVale[] = {"vale_text", "vale", "ValeForCausalLM"};
constexpr Architecture kArchitectures[] = {
    {"hill", kHill, configure_hill, nullptr, decoder_forward},
    {.name = "vale2",
     .hf_types = kVale,
     .configure = configure_vale},
    {.name = "old", .hf_types = {}, .configure = configure_old},
};
"""


class ArchitectureTable(unittest.TestCase):
    def test_rows(self):
        self.assertEqual(list(architecture_table.rows(SOURCE)),
                         [("hill", "HillForCausalLM", "hill"), ("vale_text", "ValeForCausalLM", "vale2")])

    def test_readme_is_that_of_the_list(self):
        subprocess.run([sys.executable, TOOLS / "architecture_table.py", "--check"], check=True)


if __name__ == "__main__":
    unittest.main()
