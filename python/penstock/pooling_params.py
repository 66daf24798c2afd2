"""How states become vectors: vLLM's `PoolingParams`."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional


@dataclass
class PoolingParams:
    """Of one request.

    Attributes:
        use_activation: whether vectors are normalised, scores activated; None is as the checkpoint says.
        dimensions: the first so many (Matryoshka); None is all.
        task: "embed", "classify" or "score"; the method that is called says it already.
    """

    use_activation: Optional[bool] = None
    dimensions: Optional[int] = None
    task: Optional[str] = None
    truncate_prompt_tokens: Optional[int] = None
    step_tag_id: Optional[int] = None
    returned_token_ids: Optional[List[int]] = None
    requires_token_ids: bool = False
    extra_kwargs: Optional[Dict[str, Any]] = None

    def __post_init__(self) -> None:
        if self.dimensions is not None and self.dimensions < 1:
            raise ValueError(f"dimensions: expected at least 1, got {self.dimensions}")
        for name in ("step_tag_id", "returned_token_ids", "extra_kwargs"):
            if getattr(self, name):
                raise ValueError(f"{name}: not supported")

    def clone(self) -> "PoolingParams":
        """A copy."""
        return PoolingParams(self.use_activation, self.dimensions, self.task, self.truncate_prompt_tokens)


@dataclass
class PoolerConfig:
    """Of a model: instead of what its checkpoint says.

    Attributes:
        pooling_type: "MEAN", "CLS", "LAST" or "MAX".
        use_activation: whether vectors are normalised.
        dimensions: the first so many.
    """

    pooling_type: Optional[str] = None
    use_activation: Optional[bool] = None
    normalize: Optional[bool] = None
    dimensions: Optional[int] = None
