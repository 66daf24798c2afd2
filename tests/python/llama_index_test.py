"""LlamaIndex's classes beside sentence-transformers' vectors and scores (golden files). Skipped where LlamaIndex is not installed;
scripts/test_python runs it in an environment that has it."""
import asyncio
import json

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import VectorStoreIndex  # noqa: E402
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode  # noqa: E402

import penstock  # noqa: E402
from conftest import ROOT, names_of_an_example  # noqa: E402
from penstock.llama_index import PenstockEmbedding, PenstockRerank  # noqa: E402

SENTENCES = ROOT / "tests/golden/sentences/mean_normalized"
CROSS = ROOT / "tests/golden/cross_encoders/bert"


def test_questions_and_texts_have_their_prompts():
    cases = [case for case in json.loads((SENTENCES / "golden.json").read_text()) if case["prompt_name"]]
    embedding = PenstockEmbedding(str(SENTENCES), truncate=True)
    assert embedding.to_payload() == {"class_name": "PenstockEmbedding", "model_name": "mean_normalized", "embed_batch_size": 256}
    assert cases
    for case in cases:
        of_query = case["prompt_name"] == "query"
        found = embedding.get_query_embedding(case["text"]) if of_query else embedding.get_text_embedding(case["text"])
        assert found == pytest.approx(case["embedding"], abs=1e-5), case
        again = asyncio.run(embedding.aget_query_embedding(case["text"]) if of_query else embedding.aget_text_embedding(case["text"]))
        assert again == found
    texts = [f"text {i}" for i in range(300)]
    batch = embedding.get_text_embedding_batch(texts)
    assert len(batch) == 300
    assert batch[7] == pytest.approx(embedding.get_text_embedding(texts[7]), abs=1e-5)
    assert asyncio.run(embedding.aget_text_embedding_batch(texts[:3])) == pytest.approx(numpy_of(batch[:3]), abs=1e-5)


def numpy_of(rows):
    import numpy
    return numpy.array(rows)


def test_an_index_finds_what_is_nearest():
    texts = ["The cat sat on the mat.", "A dog ran.", "Once upon a time"]
    index = VectorStoreIndex([TextNode(text=text) for text in texts],
                             embed_model=PenstockEmbedding(str(SENTENCES), query_prompt="document", arguments={"threads": 1}))
    retriever = index.as_retriever(similarity_top_k=1)
    for text in texts:
        [found] = retriever.retrieve(text)
        assert found.node.get_content() == text and found.score == pytest.approx(1, abs=1e-5)


def test_nodes_come_by_relevance():
    cases = json.loads((CROSS / "golden.json").read_text())
    query = cases[0]["first"]
    nodes = [NodeWithScore(node=TextNode(text=case["second"], id_=str(i)), score=0.5) for i, case in enumerate(cases)]
    with penstock.LLM(str(CROSS)) as llm:
        rerank = PenstockRerank(model=llm, top_n=len(nodes))
        found = rerank.postprocess_nodes(nodes, query_str=query)
        assert sorted(int(one.node.node_id) for one in found) == list(range(len(nodes)))
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        [first] = [one.score for one in found if one.node.node_id == "0"]
        assert first == pytest.approx(cases[0]["score"], abs=1e-5)
        best = asyncio.run(PenstockRerank(model=llm, top_n=1).apostprocess_nodes(nodes, QueryBundle(query)))
        assert [one.node.node_id for one in best] == [found[0].node.node_id]
        assert rerank.postprocess_nodes([], query_str=query) == []
        with pytest.raises(ValueError, match="query_bundle"):
            rerank.postprocess_nodes(nodes)


def test_the_example_of_the_docs(tmp_path, monkeypatch):
    assert len(names_of_an_example("penstock.llama_index", tmp_path, monkeypatch)["best"]) == 1
