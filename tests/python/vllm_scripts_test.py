"""Scripts for vLLM's offline API, in the ways in which its public examples use it, with their imports changed and nothing else."""
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import ROOT, STORIES

SCRIPTS = sorted((pathlib.Path(__file__).parent / "vllm_scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_runs(script, tmp_path, script_folder):
    (tmp_path / "model").symlink_to(STORIES)
    (tmp_path / "chat-model").symlink_to(script_folder)
    (tmp_path / "embedding-model").symlink_to(ROOT / "tests/golden/sentences/mean_normalized")
    code = re.sub(r"^from vllm\b", "from penstock", script.read_text(), flags=re.M)
    assert code != script.read_text()
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
