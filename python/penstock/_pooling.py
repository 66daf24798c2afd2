"""Vectors, classes and scores: the part of `LLM` for models that pool."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

from . import _core
from ._progress import progress
from .engine_args import EngineArgs
from .inputs import ParsedPrompt, parse_prompts
from .outputs import (ClassificationRequestOutput, EmbeddingOutput, EmbeddingRequestOutput, PoolingOutput,
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
        truncate = params.truncate_prompt_tokens is not None
        for name, value in (options or {}).items():
            if name in ("truncate_prompt_tokens", "truncation"):
                truncate = truncate or value not in (None, False)
            elif not (name == "add_special_tokens" and value):
                raise ValueError(f"tokenization_kwargs: {name!r} is not supported for pooling")
        if params.truncate_prompt_tokens not in (None, -1):
            raise ValueError("truncate_prompt_tokens: expected -1 (what the model takes), got "
                             f"{params.truncate_prompt_tokens}")
        config = self._config
        normalize = params.use_activation
        if normalize is None:
            normalize = config.use_activation if config.use_activation is not None else config.normalize
        bar = progress(use_tqdm, len(prompts), "Processed prompts")
        done = 0

        def tell(n_done: int, _: int) -> None:
            nonlocal done
            bar.update(n_done - done)
            done = n_done

        try:
            return self._model.embed([prompt.content for prompt in prompts], (config.pooling_type or "").lower(), normalize,
                                     params.dimensions or config.dimensions or 0, truncate, tell)
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
        """Refused: classification heads are not read yet."""
        raise ValueError("classify: this model has no classification head that is read")

    def score(self, data_1: Any, data_2: Any, params: Optional[PoolingParams], names: Names, use_tqdm: UseTqdm,
              options: Optional[Dict[str, Any]]) -> List[ScoringRequestOutput]:
        """The cosine of the vectors' angle."""
        import numpy  # whose threads would take the program's signals if every command started them

        first, second = parse_prompts(data_1), parse_prompts(data_2)
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            raise ValueError(f"score: expected one text or as many as in the second list ({len(second)}), got {len(first)}")
        if not first:
            return []
        vectors = self._vectors(first + second, params, use_tqdm, options)
        left, right = vectors[:len(first)].astype(numpy.float64), vectors[len(first):].astype(numpy.float64)
        lengths = numpy.linalg.norm(left, axis=1) * numpy.linalg.norm(right, axis=1)
        scores = (left * right).sum(axis=1) / numpy.maximum(lengths, 1e-12)
        return [ScoringRequestOutput(name, ScoringOutput(float(score)), [])
                for name, score in zip(names(len(first)), scores)]
