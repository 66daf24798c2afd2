"""The examples of docs/python.md and the README run as they stand; each in a process of its own."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks():
    for name in ("README.md", "docs/python.md"):
        text = (ROOT / name).read_text()
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
            yield pytest.param(match[1], id=f"{name}:{text.count(chr(10), 0, match.start()) + 1}")


@pytest.mark.parametrize("code", list(blocks()))
def test_example(code, tmp_path, script_folder):
    (tmp_path / "chat-model").symlink_to(script_folder)
    (tmp_path / "embedding-model").symlink_to(ROOT / "tests/golden/sentences/mean_normalized")
    result = subprocess.run([sys.executable, "-W", "error::SyntaxWarning", "-c", code], cwd=tmp_path, capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0, result.stderr
