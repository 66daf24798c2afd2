"""LangChain's classes beside sentence-transformers' vectors and scores (golden files), and held to LangChain's own tests. Skipped where
LangChain is not installed; scripts/test_python runs it in an environment that has it."""
import asyncio
import json

import pytest

pytest.importorskip("langchain_core")
tests_of_langchain = pytest.importorskip("langchain_tests.integration_tests")
unit_tests_of_langchain = pytest.importorskip("langchain_tests.unit_tests")
pytest.importorskip("pytest_asyncio")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.vectorstores import InMemoryVectorStore  # noqa: E402

import penstock  # noqa: E402
from conftest import ROOT, SMALL, names_of_an_example  # noqa: E402
from penstock.langchain import PenstockEmbeddings, PenstockReranker  # noqa: E402

SENTENCES = ROOT / "tests/golden/sentences"
CROSS = ROOT / "tests/golden/cross_encoders/bert"


def golden(folder):
    return json.loads((folder / "golden.json").read_text())


class _OfLangChain:
    @property
    def embeddings_class(self):
        return PenstockEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": str(SENTENCES / "mean_normalized")}


class TestUnit(_OfLangChain, unit_tests_of_langchain.EmbeddingsUnitTests):
    pass


@pytest.mark.asyncio
class TestIntegration(_OfLangChain, tests_of_langchain.EmbeddingsIntegrationTests):
    pass


@pytest.mark.parametrize("name", ["mean_normalized", "cls_with_prompts"])
def test_questions_and_documents_have_their_prompts(name):
    cases = golden(SENTENCES / name)
    with penstock.LLM(str(SENTENCES / name)) as llm:
        embeddings = PenstockEmbeddings(llm, truncate=True)
        n = {"query": 0, "document": 0}
        for case in cases:
            if case["prompt_name"] in n:
                found = embeddings.embed_query(case["text"]) if case["prompt_name"] == "query" else embeddings.embed_documents([case["text"]])[0]
                assert found == pytest.approx(case["embedding"], abs=1e-5), case
                n[case["prompt_name"]] += 1
        assert sum(n.values()) > 0
        assert embeddings.embed_documents(["a"])[0] != embeddings.embed_query("a")
        plain = PenstockEmbeddings(llm, query_prompt="", document_prompt="")
        assert plain.embed_documents(["a"])[0] == plain.embed_query("a")
        assert len(PenstockEmbeddings(llm, dimensions=8).embed_query("a")) == 8
        assert embeddings.embed_documents([]) == []
        with pytest.raises(ValueError, match="query_prompt: expected one of the checkpoint's prompts .*document.*, got 'colour'"):
            PenstockEmbeddings(llm, query_prompt="colour")
        with pytest.raises(TypeError, match="threads"):
            PenstockEmbeddings(llm, threads=1)
        with pytest.raises(ValueError, match="tokens"):
            plain.embed_query("word " * 2000)


def test_a_store_finds_what_is_nearest():
    texts = ["The cat sat on the mat.", "A dog ran.", "Once upon a time"]
    store = InMemoryVectorStore(PenstockEmbeddings(str(SENTENCES / "mean_normalized"), query_prompt="document"))
    store.add_texts(texts)
    for text in texts:
        [(found, score)] = store.similarity_search_with_score(text, k=1)
        assert found.page_content == text and score == pytest.approx(1, abs=1e-5)

    async def at_once():
        return await asyncio.gather(*(store.asimilarity_search(text, k=1) for text in texts * 8))
    assert [found.page_content for [found] in asyncio.run(at_once())] == texts * 8


def test_documents_come_by_relevance():
    cases = golden(CROSS)
    query = cases[0]["first"]
    documents = [Document(page_content=case["second"], metadata={"i": i}) for i, case in enumerate(cases)]
    with penstock.LLM(str(CROSS)) as llm:
        scores = [output.outputs.score for output in llm.score(query, [one.page_content for one in documents], use_tqdm=False,
                                                               tokenization_kwargs={"truncation": True})]
        assert scores[0] == pytest.approx(cases[0]["score"], abs=1e-5)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        for top_n in (1, 3, None):
            found = PenstockReranker(model=llm, top_n=top_n).compress_documents(documents, query)
            assert [one.metadata["i"] for one in found] == order[:top_n]
            assert [one.metadata["relevance_score"] for one in found] == pytest.approx([scores[i] for i in order[:top_n]])
        assert "relevance_score" not in documents[0].metadata
        assert list(PenstockReranker(model=llm).compress_documents([], query)) == []


def test_a_model_of_text_is_opened_for_vectors_and_a_chat_is_not():
    assert len(PenstockEmbeddings(SMALL).embed_query("Once")) > 8
    with penstock.LLM(SMALL) as llm, pytest.raises(ValueError, match="runner='pooling'"):
        PenstockEmbeddings(llm).embed_query("Once")


def test_the_example_of_the_docs(tmp_path, monkeypatch):
    assert len(names_of_an_example("penstock.langchain", tmp_path, monkeypatch)["best"]) == 1
