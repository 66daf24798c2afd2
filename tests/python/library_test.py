"""The examples of the library, built with a C++ compiler against the installed package alone."""
import subprocess

import pytest

import penstock
from conftest import ROOT, STORIES


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    subprocess.run(["cmake", "-S", str(ROOT / "examples"), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    f"-Dpenstock_DIR={penstock.get_cmake_dir()}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


def test_a_program_writes_what_python_writes(examples, stories):
    prompts = ["Once upon a time", "The dog"]
    expected = stories.generate(prompts, penstock.SamplingParams(temperature=0, max_tokens=20), use_tqdm=False)
    printed = subprocess.run([str(examples / "complete"), STORIES, *prompts], check=True, capture_output=True, text=True).stdout
    for prompt, output in zip(prompts, expected):
        assert output.outputs[0].text in printed


def test_the_library_is_the_packages(examples):
    linked = subprocess.run(["ldd", str(examples / "complete")], check=True, capture_output=True, text=True).stdout
    assert f"{penstock.__path__[0]}/lib/libpenstock.so" in linked
    assert "not found" not in linked


def test_headers_compile_alone(tmp_path):
    for header in sorted((ROOT / "include/penstock").glob("*.h")):
        program = tmp_path / "one.cc"
        program.write_text(f'#include "penstock/{header.name}"\n')
        subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{penstock.get_include()}", str(program)], check=True)
