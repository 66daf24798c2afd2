"""Vectors, classes and scores: the part of `LLM` for models that pool."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

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
        known = {"model", "backend", "threads", "batch_invariant", "enforce_eager", "quantize", "max_num_batched_tokens"}
        self._model = _core.EmbeddingModel({name: value for name, value in args.config.items() if name in known})
        self._config = args.pooler_config

    def _tokens(self, prompts: List[ParsedPrompt], params: PoolingParams, options: Optional[Dict[str, Any]],
                with_prompt: bool) -> List[List[int]]:
        """What the model reads of each prompt; a classifier reads it without the prompts of embeddings."""
        return self._model.encode([prompt.content for prompt in prompts], with_prompt, *_truncation(params, options))

    def _vectors(self, tokens: List[List[int]], params: PoolingParams, use_tqdm: UseTqdm, all_tokens: bool = False) -> Any:
        config = self._config
        normalize = params.use_activation
        if normalize is None:
            normalize = config.use_activation if config.use_activation is not None else config.normalize
        pooling = "all" if all_tokens else (config.pooling_type or "").lower()
        return self._shown(use_tqdm, len(tokens), lambda tell: self._model.embed(
            tokens, pooling, normalize, params.dimensions or config.dimensions or 0, tell))

    def _classes(self, tokens: List[List[int]], params: PoolingParams, use_tqdm: UseTqdm) -> Any:
        return self._shown(use_tqdm, len(tokens),
                           lambda tell: self._model.classify(tokens, params.use_activation is not False, tell))

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
        params = params or PoolingParams()
        tokens = self._tokens(prompts, params, options, with_prompt=True)
        vectors = self._vectors(tokens, params, use_tqdm)
        return [EmbeddingRequestOutput(name, EmbeddingOutput(vector.tolist()), ids)
                for name, vector, ids in zip(names(len(tokens)), vectors, tokens)]

    def encode(self, prompts: List[ParsedPrompt], params: Optional[PoolingParams], task: str, names: Names,
               use_tqdm: UseTqdm, options: Optional[Dict[str, Any]]) -> List[PoolingRequestOutput[PoolingOutput]]:
        """Arrays: a vector of each prompt, one of each of its tokens, or its classes."""
        params = params or PoolingParams()
        if task not in ("embed", "token_embed", "classify"):
            raise ValueError(f"pooling_task: expected embed, token_embed or classify, got {task!r}")
        tokens = self._tokens(prompts, params, options, with_prompt=task != "classify")
        if task == "classify":
            rows = self._classes(tokens, params, use_tqdm)
        else:
            rows = self._vectors(tokens, params, use_tqdm, all_tokens=task == "token_embed")
        return [PoolingRequestOutput(name, PoolingOutput(row), ids)
                for name, row, ids in zip(names(len(tokens)), rows, tokens)]

    def classify(self, prompts: List[ParsedPrompt], params: Optional[PoolingParams], names: Names, use_tqdm: UseTqdm,
                 options: Optional[Dict[str, Any]]) -> List[ClassificationRequestOutput]:
        """Probabilities, or with use_activation=False logits."""
        params = params or PoolingParams()
        tokens = self._tokens(prompts, params, options, with_prompt=False)
        rows = self._classes(tokens, params, use_tqdm)
        return [ClassificationRequestOutput(name, ClassificationOutput(row.tolist()), ids)
                for name, row, ids in zip(names(len(tokens)), rows, tokens)]

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
        params = params or PoolingParams()
        if self._model.info()["labels"]:
            return self._cross_scores(first, second, params, names, use_tqdm, options)
        tokens = self._tokens(first + second, params, options, with_prompt=True)
        vectors = numpy.array(self._vectors(tokens, params, use_tqdm), dtype=numpy.float64)
        left, right = vectors[:len(first)], vectors[len(first):]
        lengths = numpy.linalg.norm(left, axis=1) * numpy.linalg.norm(right, axis=1)
        scores = (left * right).sum(axis=1) / numpy.maximum(lengths, 1e-12)
        return [ScoringRequestOutput(name, ScoringOutput(float(score)), one + other)
                for name, score, one, other in zip(names(len(first)), scores, tokens, tokens[len(first):])]

    def _cross_scores(self, first: List[ParsedPrompt], second: List[ParsedPrompt], params: PoolingParams, names: Names,
                      use_tqdm: UseTqdm, options: Optional[Dict[str, Any]]) -> List[ScoringRequestOutput]:
        if any(prompt.text is None for prompt in first + second):
            raise ValueError("score: a cross-encoder reads texts, got token ids")
        pairs = [(left.text or "", right.text or "") for left, right in zip(first, second)]
        truncation = _truncation(params, options)
        tokens = self._model.encode_pairs(pairs, *truncation)
        scores = self._shown(use_tqdm, len(pairs), lambda tell: self._model.score(
            pairs, params.use_activation is not False, *truncation, tell))
        return [ScoringRequestOutput(name, ScoringOutput(score), ids)
                for name, score, ids in zip(names(len(pairs)), scores, tokens)]


def _truncation(params: PoolingParams, options: Optional[Dict[str, Any]]) -> Tuple[bool, int]:
    """Whether what is too long for the model is cut, and to how many tokens everything is (0: as it is). ValueError."""
    truncate, to = False, params.truncate_prompt_tokens
    for name, value in (options or {}).items():
        if name == "truncate_prompt_tokens":
            to = value if to is None else to
        elif name == "truncation":
            truncate = value not in (None, False)
        elif not (name == "add_special_tokens" and value):
            raise ValueError(f"tokenization_kwargs: {name!r} is not supported for pooling")
    if to is None:
        return truncate, 0
    if to == 0 or to < -1:
        raise ValueError(f"truncate_prompt_tokens: expected at least 1, or -1 (what the model takes), got {to}")
    return (True, 0) if to == -1 else (truncate, to)
