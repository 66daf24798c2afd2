"""The examples in Python of the README and the guides run as they stand; each in a process of its own."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from lora_model import write_adapter  # noqa: E402


def blocks():
    for name in ("README.md", "docs/guide/python.md", "docs/guide/adapters.md", "docs/guide/speculation.md"):
        text = (ROOT / name).read_text()
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
            yield pytest.param(match[1], id=f"{name}:{text.count(chr(10), 0, match.start()) + 1}")


@pytest.mark.parametrize("code", list(blocks()))
def test_example(code, tmp_path, script_folder):
    (tmp_path / "chat-model").symlink_to(script_folder)
    (tmp_path / "embedding-model").symlink_to(ROOT / "tests/golden/sentences/mean_normalized")
    (tmp_path / "base-model").symlink_to(ROOT / "models/penstock-stories-1m-bf16")
    write_adapter(tmp_path / "formal-lora", tmp_path / "base-model")
    result = subprocess.run([sys.executable, "-W", "error::SyntaxWarning", "-c", code], cwd=tmp_path, capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_streams_example():
    result = subprocess.run([sys.executable, ROOT / "examples/python/async_streams.py"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert {line[0] for line in result.stdout.splitlines()} == {"0", "1", "2"}


def test_batch_example(tmp_path):
    lines = [{"custom_id": f"a{i}", "url": "/v1/completions", "body": {"prompt": f"Number {i}", "max_tokens": 4}} for i in range(20)]
    lines[7]["body"]["temperature"] = -1
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    result = subprocess.run([sys.executable, ROOT / "examples/python/batch_jsonl.py", tmp_path / "in.jsonl", tmp_path / "out.jsonl"],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    done = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["custom_id"] for one in done] == [line["custom_id"] for line in lines]
    codes = [one["response"]["status_code"] for one in done]
    assert codes[7] == 400 and codes.count(200) == 19


def test_notebook():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "examples/python/stories.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("<span title=" in output.get("data", {}).get("text/html", "") for output in shown)
