"""The package inside other people's programs: lm-eval, LangChain. Skipped where those are not installed; scripts/test_python runs
it in the environment of the client tests, which has them."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

import penstock
from conftest import ROOT, SMALL

CLIENTS = ROOT / "tests/clients"


def test_lm_eval_gives_transformers_scores(tmp_path):
    pytest.importorskip("lm_eval")
    golden = json.loads((CLIENTS / "golden.json").read_text())
    model = ROOT / "models/penstock-stories-1m-bf16"
    done = subprocess.run([sys.executable, "-m", "penstock.lm_eval_model", "--model", "penstock", "--model_args",
                           f"pretrained={model},add_bos_token=False", "--tasks", ",".join(golden), "--include_path", str(CLIENTS / "tasks"),
                           "--output_path", str(tmp_path)], capture_output=True, text=True, timeout=300, cwd=CLIENTS / "tasks",
                          env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    results = json.loads(next(pathlib.Path(tmp_path).rglob("results_*.json")).read_text())["results"]
    for task, scores in golden.items():
        for name, score in scores.items():
            tolerance = 0 if name.startswith(("acc", "exact_match")) else 0.01
            assert results[task][name] == pytest.approx(score, rel=tolerance, abs=0), (task, name)


def test_langchain_by_the_server():
    langchain = pytest.importorskip("langchain_openai")
    with penstock.openai_server(SMALL) as server:
        llm = langchain.OpenAI(base_url=server.base_url, api_key=server.api_key, model=server.model, max_tokens=5, temperature=0)
        assert llm.invoke("Once upon a time")


def test_openai_client_streams():
    openai = pytest.importorskip("openai")
    with penstock.openai_server(SMALL) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key=server.api_key)
        pieces = [chunk.choices[0].text for chunk in
                  client.completions.create(model=server.model, prompt="Once", max_tokens=8, stream=True)]
        assert "".join(pieces)
