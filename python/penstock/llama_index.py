"""Classes for LlamaIndex that compute in this process: vectors of texts, and nodes by relevance.

    from penstock.llama_index import PenstockEmbedding, PenstockRerank

    index = VectorStoreIndex.from_documents(documents, embed_model=PenstockEmbedding("BAAI/bge-small-en-v1.5"))

Chats are served by penstock.openai_server() or `penstock serve`, and used by LlamaIndex's own OpenAILike.
"""
from __future__ import annotations

import asyncio
from typing import Any, Dict, List, Optional

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from ._retrieval import Vectors, most_relevant, opened
from .llm import LLM, label_of

__all__ = ["PenstockEmbedding", "PenstockRerank"]

_BATCH = 256  # texts that go to the engine at once


class PenstockEmbedding(BaseEmbedding):  # type: ignore[misc,unused-ignore]
    """Vectors of texts.

    Args:
        model: a GGUF file, a Hugging Face directory, a name, or an open LLM with runner="pooling".
        query_prompt, document_prompt: names of the checkpoint's prompts; None: "query", and "document" or "passage", where it has
            them; "": none.
        dimensions: number of leading dimensions to keep (Matryoshka); None: all.
        truncate: whether texts longer than the model reads are cut; otherwise they are errors.
        arguments: arguments of LLM.
        **fields: fields of BaseEmbedding; embed_batch_size is 256 unless it is given.

    Raises:
        FileNotFoundError, ValueError, TypeError, MemoryError: as LLM.
    """

    _vectors: Vectors = PrivateAttr()

    def __init__(self, model: Any, *, query_prompt: Optional[str] = None, document_prompt: Optional[str] = None,
                 dimensions: Optional[int] = None, truncate: bool = False, arguments: Optional[Dict[str, Any]] = None,
                 **fields: Any) -> None:
        llm = opened(model, arguments or {})
        super().__init__(**{"model_name": label_of(llm.args), "embed_batch_size": _BATCH, **fields})
        self._vectors = Vectors(llm, query_prompt, document_prompt, dimensions, truncate)

    @classmethod
    def class_name(cls) -> str:
        """The name in LlamaIndex's records."""
        return "PenstockEmbedding"

    def _get_query_embedding(self, query: str) -> List[float]:
        return self._vectors.of_queries([query])[0]

    async def _aget_query_embedding(self, query: str) -> List[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> List[float]:
        return self._vectors.of_documents([text])[0]

    def _get_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        return self._vectors.of_documents(texts)

    async def _aget_text_embedding(self, text: str) -> List[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


class PenstockRerank(BaseNodePostprocessor):  # type: ignore[misc,unused-ignore]
    """The most relevant of retrieved nodes, the best first, with their scores.

    Attributes:
        model: a cross-encoder (a model with one class), or an embedding model, whose vectors are compared.
        top_n: number of nodes that are kept.
        truncate: whether texts longer than the model reads are cut.
        arguments: arguments of LLM.
    """

    model: Any = Field(exclude=True)
    top_n: int = 2
    truncate: bool = True
    arguments: Dict[str, Any] = Field(default_factory=dict)
    _llm: LLM = PrivateAttr()

    def model_post_init(self, _context: Any) -> None:
        """Opens the model."""
        self._llm = opened(self.model, self.arguments)

    @classmethod
    def class_name(cls) -> str:
        """The name in LlamaIndex's records."""
        return "PenstockRerank"

    def _postprocess_nodes(self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None) -> List[NodeWithScore]:
        if query_bundle is None:
            raise ValueError("query_bundle: expected a question, got none")
        texts = [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        found = most_relevant(self._llm, query_bundle.query_str, texts, self.top_n, self.truncate)
        return [NodeWithScore(node=nodes[i].node, score=score) for i, score in found]
