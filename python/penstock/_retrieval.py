"""Vectors and relevance of texts for retrieval: what the classes for LangChain and LlamaIndex share."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .llm import LLM
from .pooling_params import PoolingParams

# Names under which checkpoints have the prompts of questions and of the texts that are searched, the preferred ones first.
_OF_QUERIES = ("query",)
_OF_DOCUMENTS = ("document", "passage", "corpus")


def opened(model: Any, arguments: Dict[str, Any]) -> LLM:
    """Returns the model for pooling; an open LLM is returned as it is. Errors: as LLM."""
    if isinstance(model, LLM):
        if arguments:
            raise TypeError(f"{', '.join(arguments)}: arguments of a model that is already open")
        return model
    return LLM(model, **{"runner": "pooling", **arguments})


class Vectors:
    """Vectors of questions and of texts, each with the checkpoint's prompt for its kind. Thread-safe.

    Args:
        llm: the open model.
        query_prompt, document_prompt: names of the checkpoint's prompts; None: the usual ones, where the checkpoint has them; "": none.
        dimensions: number of leading dimensions to keep (Matryoshka); None: all.
        truncate: whether texts that are too long are cut; otherwise they are errors.
    """

    def __init__(self, llm: LLM, query_prompt: Optional[str], document_prompt: Optional[str], dimensions: Optional[int],
                 truncate: bool) -> None:
        self._llm = llm
        self._params = PoolingParams(dimensions=dimensions)
        self._truncate = truncate
        known: List[str] = llm.info.get("prompt_names", [])
        self._query_prompt = _chosen("query_prompt", query_prompt, _OF_QUERIES, known)
        self._document_prompt = _chosen("document_prompt", document_prompt, _OF_DOCUMENTS, known)

    def of_queries(self, texts: Sequence[str]) -> List[List[float]]:
        """Returns the vectors of questions."""
        return self._embed(texts, self._query_prompt)

    def of_documents(self, texts: Sequence[str]) -> List[List[float]]:
        """Returns the vectors of texts that are searched."""
        return self._embed(texts, self._document_prompt)

    def _embed(self, texts: Sequence[str], prompt_name: Optional[str]) -> List[List[float]]:
        if not texts:
            return []
        outputs = self._llm.embed(list(texts), use_tqdm=False, pooling_params=self._params,
                                  tokenization_kwargs={"prompt_name": prompt_name, "truncation": self._truncate})
        return [output.outputs.embedding for output in outputs]


def most_relevant(llm: LLM, query: str, texts: Sequence[str], top_n: Optional[int], truncate: bool) -> List[Tuple[int, float]]:
    """Returns (index, score) of the top_n most relevant texts, the best first. A cross-encoder reads query and text together; other
    models give the cosine similarity of their vectors."""
    if not texts:
        return []
    outputs = llm.score(query, list(texts), use_tqdm=False, tokenization_kwargs={"truncation": truncate})
    scores = [output.outputs.score for output in outputs]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [(i, scores[i]) for i in order[:top_n]]


def _chosen(argument: str, given: Optional[str], usual: Sequence[str], known: Sequence[str]) -> Optional[str]:
    if given is None:
        return next((name for name in usual if name in known), None)
    if given and given not in known:
        raise ValueError(f"{argument}: expected one of the checkpoint's prompts ({', '.join(known) or 'it has none'}), got {given!r}")
    return given
