"""The outputs of requests, in the form of vLLM's."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Generic, List, Optional, TypeVar, Union

from . import _html
from .logprobs import PromptLogprobs, SampleLogprobs
from .lora.request import LoRARequest

if TYPE_CHECKING:
    import numpy
    import numpy.typing


@dataclass
class RequestStateStats:
    """Statistics of a request. `arrival_time` and `finished_time` are seconds since the epoch, the ..._ts fields are times of
    time.monotonic()."""

    num_generation_tokens: int = 0
    num_preemptions: int = 0
    arrival_time: float = 0.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    first_token_latency: float = 0.0  # seconds from arrival
    is_corrupted: bool = False
    finished_time: float = 0.0
    # Speculation.
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    # Properties of vLLM's older RequestMetrics; times are seconds since the epoch.
    @property
    def first_scheduled_time(self) -> float:
        """Time at which the request was first scheduled."""
        return self.arrival_time + self.scheduled_ts - self.queued_ts

    @property
    def first_token_time(self) -> float:
        """Time of the first token."""
        return self.arrival_time + self.first_token_ts - self.queued_ts

    @property
    def last_token_time(self) -> float:
        """Time of the last token."""
        return self.arrival_time + self.last_token_ts - self.queued_ts

    @property
    def time_in_queue(self) -> float:
        """Seconds from the request's arrival until it was first scheduled."""
        return self.scheduled_ts - self.queued_ts


@dataclass
class CompletionOutput:
    """One of a request's n texts.

    Attributes:
        index: 0 to n - 1.
        text: the generated text, without the stop string that ended it.
        token_ids: the generated tokens, including the stop token that ended the text.
        cumulative_logprob: the sum of the tokens' log-probabilities; None without logprobs.
        logprobs: for every token the log-probabilities of the token and of the requested alternatives; None without logprobs.
        finish_reason: "stop", "length", "abort" or "error"; None while it runs.
        stop_reason: the stop string or stop token that ended it; None for an end-of-sequence token and other ends.
        error: reason of finish_reason "error" and of some "abort".
    """

    index: int
    text: str
    token_ids: List[int]
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[SampleLogprobs] = None
    routed_experts: Optional[Any] = None
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: Optional[LoRARequest] = None
    error: Optional[str] = None

    def finished(self) -> bool:
        """Whether the text is finished."""
        return self.finish_reason is not None

    def __repr__(self) -> str:
        return (f"CompletionOutput(index={self.index}, text={self.text!r}, token_ids={self.token_ids}, "
                f"cumulative_logprob={self.cumulative_logprob}, logprobs={self.logprobs}, "
                f"finish_reason={self.finish_reason}, stop_reason={self.stop_reason})")

    def _repr_html_(self) -> str:
        return _html.completion(self)


@dataclass
class RequestOutput:
    """A request and its texts.

    Attributes:
        request_id: its name; unique within one engine.
        prompt: text of the prompt; None if token ids were given.
        prompt_token_ids: tokens of the prompt.
        prompt_logprobs: for every token of the prompt, None for the first; None unless asked for.
        outputs: n outputs; with RequestOutputKind.DELTA only those with new tokens or text.
        finished: whether all outputs are finished.
        metrics: statistics; None while the request runs.
        num_cached_tokens: number of prompt tokens found in the prefix cache.
    """

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: Optional[List[int]]
    prompt_logprobs: Optional[PromptLogprobs]
    outputs: List[CompletionOutput]
    finished: bool
    metrics: Optional[RequestStateStats] = None
    lora_request: Optional[LoRARequest] = None
    encoder_prompt: Optional[str] = None
    encoder_prompt_token_ids: Optional[List[int]] = None
    num_cached_tokens: Optional[int] = None
    kv_transfer_params: Optional[Dict[str, Any]] = None

    def __repr__(self) -> str:
        return (f"RequestOutput(request_id={self.request_id}, prompt={self.prompt!r}, "
                f"prompt_token_ids={self.prompt_token_ids}, prompt_logprobs={self.prompt_logprobs}, "
                f"outputs={self.outputs}, finished={self.finished}, metrics={self.metrics}, "
                f"lora_request={self.lora_request}, num_cached_tokens={self.num_cached_tokens})")

    def _repr_html_(self) -> str:
        return _html.request(self)


@dataclass
class BeamSearchSequence:
    """One text found by a beam search."""

    tokens: List[int]  # tokens of the prompt and of the text
    logprobs: SampleLogprobs
    cum_logprob: float
    text: str  # text of all tokens
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: Optional[LoRARequest] = None


@dataclass
class BeamSearchOutput:
    """The texts of one prompt, most likely first."""

    sequences: List[BeamSearchSequence] = field(default_factory=list)


@dataclass
class PoolingOutput:
    """The pooler's output for a prompt: a float32 numpy array whose methods also accept torch's `dim`."""

    data: "numpy.typing.NDArray[numpy.float32]"

    def __repr__(self) -> str:
        return f"PoolingOutput(data={self.data})"


@dataclass
class EmbeddingOutput:
    """The embedding of a prompt."""

    embedding: List[float]

    @property
    def hidden_size(self) -> int:
        """The dimension of the vector."""
        return len(self.embedding)

    def __repr__(self) -> str:
        return f"EmbeddingOutput(hidden_size={self.hidden_size})"


@dataclass
class ClassificationOutput:
    """The class probabilities of a prompt."""

    probs: List[float]

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.probs)

    def __repr__(self) -> str:
        return f"ClassificationOutput(num_classes={self.num_classes})"


@dataclass
class ScoringOutput:
    """The score of two texts."""

    score: float

    def __repr__(self) -> str:
        return f"ScoringOutput(score={self.score})"


_O = TypeVar("_O")


@dataclass
class PoolingRequestOutput(Generic[_O]):
    """A request to a pooling model and its outputs."""

    request_id: str
    outputs: _O
    prompt_token_ids: List[int]
    num_cached_tokens: int = 0
    finished: bool = True

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(request_id={self.request_id!r}, outputs={self.outputs!r}, "
                f"prompt_token_ids={self.prompt_token_ids}, num_cached_tokens={self.num_cached_tokens}, "
                f"finished={self.finished})")


class EmbeddingRequestOutput(PoolingRequestOutput[EmbeddingOutput]):
    """An output of LLM.embed()."""


class ClassificationRequestOutput(PoolingRequestOutput[ClassificationOutput]):
    """An output of LLM.classify()."""


class ScoringRequestOutput(PoolingRequestOutput[ScoringOutput]):
    """An output of LLM.score()."""
