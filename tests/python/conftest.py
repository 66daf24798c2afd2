"""What the tests share: the models of the repository, and one whose replies are known to the letter."""
import pathlib
import re
import subprocess
import sys

import pytest

import penstock

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORIES = str(ROOT / "models" / "penstock-stories-15m-q8_0.gguf")
SMALL = str(ROOT / "models" / "penstock-stories-1m-q8_0.gguf")


@pytest.fixture(scope="session")
def stories():
    with penstock.LLM(STORIES, max_num_seqs=32) as llm:
        yield llm


@pytest.fixture(scope="session")
def script_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script-model")
    subprocess.run([sys.executable, str(ROOT / "tests/e2e/script_model.py"), str(folder)], check=True,
                   stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def script(script_folder):
    with penstock.LLM(str(script_folder)) as llm:
        yield llm


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No progress lines among the tests' own."""
    monkeypatch.setenv("TQDM_DISABLE", "1")


def names_of_an_example(module, folder, monkeypatch):
    """Runs the example of docs/guide/python.md that imports a module, beside models of the names that it has. Returns what it defines."""
    (folder / "embedding-model").symlink_to(ROOT / "tests/golden/sentences/mean_normalized")
    (folder / "cross-encoder").symlink_to(ROOT / "tests/golden/cross_encoders/bert")
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "docs/guide/python.md").read_text(), re.M | re.S)
    [code] = [code for code in blocks if f"from {module} import " in code]
    names = {}
    exec(code, names)
    return names
