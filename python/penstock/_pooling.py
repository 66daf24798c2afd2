"""Vectors, classes and scores: the part of `LLM` for models that pool."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

from . import _core
from ._progress import progress
from .engine_args import EngineArgs
from .inputs import ParsedPrompt, parse_prompts
from .outputs import (ClassificationOutput, ClassificationRequestOutput, EmbeddingOutput, EmbeddingRequestOutput, PoolingOutput,
                      PoolingRequestOutput, ScoringOutput, ScoringRequestOutput)
from .pooling_params import PoolingParams

Names = Callable[[int], List[str]]
UseTqdm = Union[bool, Callable[..., Any]]


class Pooler:
    """A model whose states become vectors. Calls come one after the other."""

    def __init__(self, args: EngineArgs) -> None:
        known = {"model", "backend", "threads", "batch_invariant", "quantize", "max_num_batched_tokens"}
        self._model = _core.EmbeddingModel({name: value for name, value in args.config.items() if name in known})
        self._config = args.pooler_config

    def _vectors(self, prompts: List[ParsedPrompt], params: Optional[PoolingParams], use_tqdm: UseTqdm,
                 options: Optional[Dict[str, Any]]) -> Any:
        params = params or PoolingParams()
        truncate = _truncates(params, options)
        config = self._config
        normalize = params.use_activation
        if normalize is None:
            normalize = config.use_activation if config.use_activation is not None else config.normalize
        return self._shown(use_tqdm, len(prompts), lambda tell: self._model.embed(
            [prompt.content for prompt in prompts], (config.pooling_type or "").lower(), normalize,
            params.dimensions or config.dimensions or 0, truncate, tell))

    @staticmethod
    def _shown(use_tqdm: UseTqdm, total: int, compute: Callable[[Callable[[int, int], None]], Any]) -> Any:
        """What `compute` gives, its progress shown."""
        bar = progress(use_tqdm, total, "Processed prompts")
        done = 0

        def tell(n_done: int, _: int) -> None:
            nonlocal done
            bar.update(n_done - done)
            done = n_done

        try:
            return compute(tell)
        finally:
            bar.close()

    def embed(self, prompts: List[ParsedPrompt], params: Optional[PoolingParams], names: Names, use_tqdm: UseTqdm,
              options: Optional[Dict[str, Any]]) -> List[EmbeddingRequestOutput]:
        """Vectors as lists."""
        vectors = self._vectors(prompts, params, use_tqdm, options)
        return [EmbeddingRequestOutput(name, EmbeddingOutput(vector.tolist()), prompt.token_ids or [])
                for name, vector, prompt in zip(names(len(prompts)), vectors, prompts)]

    def encode(self, prompts: List[ParsedPrompt], params: Optional[PoolingParams], task: str, names: Names,
               use_tqdm: UseTqdm, options: Optional[Dict[str, Any]]) -> List[PoolingRequestOutput[PoolingOutput]]:
        """Vectors as arrays."""
        if task != "embed":
            raise ValueError(f"pooling_task: expected embed, got {task!r}")
        vectors = self._vectors(prompts, params, use_tqdm, options)
        return [PoolingRequestOutput(name, PoolingOutput(vector), prompt.token_ids or [])
                for name, vector, prompt in zip(names(len(prompts)), vectors, prompts)]

    def classify(self, prompts: List[ParsedPrompt], params: Optional[PoolingParams], names: Names, use_tqdm: UseTqdm,
                 options: Optional[Dict[str, Any]]) -> List[ClassificationRequestOutput]:
        """Probabilities, or with use_activation=False logits."""
        params = params or PoolingParams()
        truncate = _truncates(params, options)
        rows = self._shown(use_tqdm, len(prompts), lambda tell: self._model.classify(
            [prompt.content for prompt in prompts], params.use_activation is not False, truncate, tell))
        return [ClassificationRequestOutput(name, ClassificationOutput(row.tolist()), prompt.token_ids or [])
                for name, row, prompt in zip(names(len(prompts)), rows, prompts)]

    def score(self, data_1: Any, data_2: Any, params: Optional[PoolingParams], names: Names, use_tqdm: UseTqdm,
              options: Optional[Dict[str, Any]]) -> List[ScoringRequestOutput]:
        """By the head of a cross-encoder; without one the cosine of the vectors' angle."""
        import numpy  # whose threads would take the program's signals if every command started them

        first, second = parse_prompts(data_1), parse_prompts(data_2)
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            raise ValueError(f"score: expected one text or as many as in the second list ({len(second)}), got {len(first)}")
        if not first:
            return []
        if self._model.info()["labels"]:
            return self._cross_scores(first, second, params or PoolingParams(), names, use_tqdm, options)
        vectors = self._vectors(first + second, params, use_tqdm, options)
        left, right = vectors[:len(first)].astype(numpy.float64), vectors[len(first):].astype(numpy.float64)
        lengths = numpy.linalg.norm(left, axis=1) * numpy.linalg.norm(right, axis=1)
        scores = (left * right).sum(axis=1) / numpy.maximum(lengths, 1e-12)
        return [ScoringRequestOutput(name, ScoringOutput(float(score)), [])
                for name, score in zip(names(len(first)), scores)]

    def _cross_scores(self, first: List[ParsedPrompt], second: List[ParsedPrompt], params: PoolingParams, names: Names,
                      use_tqdm: UseTqdm, options: Optional[Dict[str, Any]]) -> List[ScoringRequestOutput]:
        if any(prompt.text is None for prompt in first + second):
            raise ValueError("score: a cross-encoder reads texts, got token ids")
        truncate = _truncates(params, options)
        pairs = [(left.text or "", right.text or "") for left, right in zip(first, second)]
        scores = self._shown(use_tqdm, len(pairs), lambda tell: self._model.score(
            pairs, params.use_activation is not False, truncate, tell))
        return [ScoringRequestOutput(name, ScoringOutput(score), []) for name, score in zip(names(len(pairs)), scores)]


def _truncates(params: PoolingParams, options: Optional[Dict[str, Any]]) -> bool:
    """Whether what is too long is cut. ValueError."""
    truncate = params.truncate_prompt_tokens is not None
    for name, value in (options or {}).items():
        if name in ("truncate_prompt_tokens", "truncation"):
            truncate = truncate or value not in (None, False)
        elif not (name == "add_special_tokens" and value):
            raise ValueError(f"tokenization_kwargs: {name!r} is not supported for pooling")
    if params.truncate_prompt_tokens not in (None, -1):
        raise ValueError(f"truncate_prompt_tokens: expected -1 (what the model takes), got {params.truncate_prompt_tokens}")
    return truncate
