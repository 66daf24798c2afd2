"""Classes for LangChain that compute in this process: vectors of texts, and documents by relevance.

    from penstock.langchain import PenstockEmbeddings, PenstockReranker

    store = InMemoryVectorStore(PenstockEmbeddings("BAAI/bge-small-en-v1.5"))

Chats are served by penstock.openai_server() or `penstock serve`, and used by LangChain's own ChatOpenAI.
"""
from __future__ import annotations

import asyncio
from typing import Any, Dict, List, Optional, Sequence

from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from pydantic import Field, PrivateAttr

from ._retrieval import Vectors, most_relevant, opened
from .llm import LLM

__all__ = ["PenstockEmbeddings", "PenstockReranker"]


class PenstockEmbeddings(Embeddings):  # type: ignore[misc,unused-ignore]
    """Vectors of texts. All texts of a call go to the engine at once.

    Args:
        model: a GGUF file, a Hugging Face directory, a name, or an open LLM with runner="pooling".
        query_prompt, document_prompt: names of the checkpoint's prompts; None: "query", and "document" or "passage", where it has
            them; "": none.
        dimensions: number of leading dimensions to keep (Matryoshka); None: all.
        truncate: whether texts longer than the model reads are cut; otherwise they are errors.
        **arguments: arguments of LLM.

    Raises:
        FileNotFoundError, ValueError, TypeError, MemoryError: as LLM.
    """

    def __init__(self, model: Any, *, query_prompt: Optional[str] = None, document_prompt: Optional[str] = None,
                 dimensions: Optional[int] = None, truncate: bool = False, **arguments: Any) -> None:
        self.llm: LLM = opened(model, arguments)
        self._vectors = Vectors(self.llm, query_prompt, document_prompt, dimensions, truncate)

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        """Returns the vectors of texts that are searched."""
        return self._vectors.of_documents(texts)

    def embed_query(self, text: str) -> List[float]:
        """Returns the vector of a question."""
        return self._vectors.of_queries([text])[0]

    async def aembed_documents(self, texts: List[str]) -> List[List[float]]:
        """As embed_documents(); the event loop goes on."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> List[float]:
        """As embed_query(); the event loop goes on."""
        return await asyncio.to_thread(self.embed_query, text)


class PenstockReranker(BaseDocumentCompressor):  # type: ignore[misc,unused-ignore]
    """The most relevant of retrieved documents, the best first, each with its score as metadata["relevance_score"].

    Attributes:
        model: a cross-encoder (a model with one class), or an embedding model, whose vectors are compared.
        top_n: number of documents that are kept; None: all.
        truncate: whether texts longer than the model reads are cut.
        arguments: arguments of LLM.
    """

    model: Any
    top_n: Optional[int] = 3
    truncate: bool = True
    arguments: Dict[str, Any] = Field(default_factory=dict)
    _llm: LLM = PrivateAttr()

    def model_post_init(self, _context: Any) -> None:
        """Opens the model."""
        self._llm = opened(self.model, self.arguments)

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        """Returns copies of the most relevant documents."""
        found = most_relevant(self._llm, query, [document.page_content for document in documents], self.top_n, self.truncate)
        return [documents[i].model_copy(update={"metadata": {**documents[i].metadata, "relevance_score": score}}) for i, score in found]
