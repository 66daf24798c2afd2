"""Scripts for vLLM's offline API, in the ways in which its public examples use it, with their imports changed and nothing else."""
import importlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, STORIES

SCRIPTS = sorted((pathlib.Path(__file__).parent / "vllm_scripts").glob("*.py"))


# What vLLM's offline examples of text, and scripts like them, import.
PLACES = """beam_search config distributed distributed.parallel_state engine.arg_utils engine.async_llm_engine engine.llm_engine
entrypoints.llm inputs logger logprobs lora.request outputs platforms pooling_params renderers renderers.inputs.preprocess
sampling_params transformers_utils.repo_utils usage.usage_lib utils utils.argparse_utils utils.network_utils utils.print_utils v1.engine.async_llm
v1.engine.exceptions v1.engine.llm_engine v1.metrics.reader v1.sample.logits_processor v1.sample.logits_processor.builtin
version""".split()


@pytest.mark.parametrize("place", PLACES)
def test_places(place):
    module = importlib.import_module("penstock." + place)
    assert module.__doc__ and all(hasattr(module, name) for name in getattr(module, "__all__", []))


def token_classifier(folder):
    """The sequence classifier of the golden files as one of tokens: its matrix reads their states."""
    shutil.copytree(ROOT / "tests/golden/classifiers/bert", folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(architectures=["BertForTokenClassification"], id2label={"0": "O", "1": "A", "2": "B"})
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_runs(script, tmp_path, script_folder):
    (tmp_path / "model").symlink_to(STORIES)
    (tmp_path / "chat-model").symlink_to(script_folder)
    (tmp_path / "embedding-model").symlink_to(ROOT / "tests/golden/sentences/mean_normalized")
    (tmp_path / "directory-model").symlink_to(ROOT / "models/penstock-stories-1m-bf16")
    token_classifier(tmp_path / "token-classifier")
    code = re.sub(r"^from vllm\b", "from penstock", script.read_text(), flags=re.M)
    assert code != script.read_text()
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
