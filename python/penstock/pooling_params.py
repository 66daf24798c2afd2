"""Parameters of pooling: vLLM's `PoolingParams`."""
from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

TASKS = ("embed", "token_embed", "classify", "token_classify", "score")
_POOLINGS = ("MEAN", "CLS", "LAST", "MAX")


@dataclass
class LateChunkingParams:
    """Parameters of vectors of parts of a text, which are not supported."""

    chunk_size: int


@dataclass
class PoolingParams:
    """Pooling parameters of one request.

    Attributes:
        use_activation: whether vectors are normalized and activations are applied to scores; None: the checkpoint's default.
        dimensions: number of leading dimensions to keep (Matryoshka); None: all.
        task: "embed", "token_embed", "classify", "token_classify" or "score"; the called method implies the task and refuses a
            different one.
        truncate_prompt_tokens: maximum tokens of an input, to which it is cut; -1: the model's maximum.
    """

    use_activation: Optional[bool] = None
    dimensions: Optional[int] = None
    task: Optional[str] = None
    truncate_prompt_tokens: Optional[int] = None
    step_tag_id: Optional[int] = None
    returned_token_ids: Optional[List[int]] = None
    requires_token_ids: bool = False
    skip_reading_prefix_cache: Optional[bool] = None
    extra_kwargs: Optional[Dict[str, Any]] = None
    output_kind: Any = None
    late_interaction_params: Optional[Any] = None
    late_chunking_params: Optional[LateChunkingParams] = None

    def __post_init__(self) -> None:
        if self.dimensions is not None and (self.dimensions != self.dimensions or self.dimensions < 1):
            raise ValueError(f"dimensions: expected at least 1, got {self.dimensions}")
        if self.task is not None and self.task not in TASKS:
            raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {self.task!r}")
        for name in ("step_tag_id", "returned_token_ids", "extra_kwargs", "late_interaction_params"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: not supported")
        if self.late_chunking_params is not None:
            raise ValueError('late_chunking_params: not supported; encode(pooling_task="token_embed") has a vector of every token')

    def clone(self) -> "PoolingParams":
        """Returns a copy."""
        return copy.copy(self)


@dataclass
class PoolerConfig:
    """Pooling settings of a model, which override its checkpoint's.

    Attributes:
        pooling_type: "MEAN", "CLS", "LAST" or "MAX"; seq_pooling_type is an alias.
        use_activation: whether vectors are normalized and activations are applied to scores; normalize: the same, for vectors only.
        dimensions: number of leading dimensions to keep.
        task: task of LLM.encode() calls that do not name one. With "token_embed" LLM.embed() gives a vector of every token, and
            LLM.score() sums, over the tokens of the first text, the largest product with a token of the second (late interaction).
    """

    pooling_type: Optional[str] = None
    use_activation: Optional[bool] = None
    normalize: Optional[bool] = None
    dimensions: Optional[int] = None
    task: Optional[str] = None
    seq_pooling_type: Optional[str] = None
    tok_pooling_type: Optional[str] = None
    activation: Optional[bool] = None
    enable_chunked_processing: bool = False
    max_embed_len: Optional[int] = None
    enable_flash_late_interaction: bool = True
    logit_bias: Optional[float] = None
    logit_mean: Optional[float] = None
    logit_sigma: Optional[float] = None
    step_tag_id: Optional[int] = None
    returned_token_ids: Optional[List[int]] = None

    def __post_init__(self) -> None:
        if self.seq_pooling_type is not None and self.pooling_type not in (None, self.seq_pooling_type):
            raise ValueError(f"pooler_config: pooling_type is {self.pooling_type}, and seq_pooling_type {self.seq_pooling_type}")
        self.pooling_type = self.pooling_type or self.seq_pooling_type
        if self.pooling_type is not None and self.pooling_type.upper() not in _POOLINGS:
            raise ValueError(f"pooler_config: pooling_type: expected one of {', '.join(_POOLINGS)}, got {self.pooling_type!r}")
        if self.tok_pooling_type not in (None, "ALL"):
            raise ValueError(f"pooler_config: tok_pooling_type: expected ALL, got {self.tok_pooling_type!r}")
        if self.task is not None and self.task not in TASKS:
            raise ValueError(f"pooler_config: task: expected one of {', '.join(TASKS)}, got {self.task!r}")
        if self.use_activation is None:
            self.use_activation = self.activation
        for name in ("enable_chunked_processing", "max_embed_len", "logit_bias", "logit_mean", "logit_sigma", "step_tag_id",
                     "returned_token_ids"):
            if getattr(self, name) not in (None, False):
                raise ValueError(f"pooler_config: {name}: not supported")
