"""What comes of a request, in the shapes of vLLM's outputs."""
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
    """When things happened to a request. `arrival_time` and `finished_time` are seconds since the epoch, the others those of
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
    # Of speculation.
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    # The names of vLLM's older RequestMetrics, in seconds since the epoch.
    @property
    def first_scheduled_time(self) -> float:
        """When the request was first computed on."""
        return self.arrival_time + self.scheduled_ts - self.queued_ts

    @property
    def first_token_time(self) -> float:
        """When the first token was there."""
        return self.arrival_time + self.first_token_ts - self.queued_ts

    @property
    def last_token_time(self) -> float:
        """When the last token was there."""
        return self.arrival_time + self.last_token_ts - self.queued_ts

    @property
    def time_in_queue(self) -> float:
        """Seconds until the request was first computed on."""
        return self.scheduled_ts - self.queued_ts


@dataclass
class CompletionOutput:
    """One of a request's n texts.

    Attributes:
        index: 0 to n - 1.
        text: what was generated, without the stop string that ended it.
        token_ids: its tokens, with the stop token that ended it.
        cumulative_logprob: the sum of the tokens' log-probabilities; None without logprobs.
        logprobs: for every token the token itself and the alternatives asked for; None without logprobs.
        finish_reason: "stop", "length", "abort" or "error"; None while it runs.
        stop_reason: the stop string or stop token that ended it; None for an end-of-sequence token and other ends.
        error: with finish_reason "error", and some "abort": why.
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
        """Whether the text has come to its end."""
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
        prompt: its text; None where token ids were given.
        prompt_token_ids: its tokens.
        prompt_logprobs: for every token of the prompt, None for the first; None unless asked for.
        outputs: n of them, or with RequestOutputKind.DELTA those that have news.
        finished: whether all of them have come to their end.
        metrics: when what happened; None while it runs.
        num_cached_tokens: of the prompt, found in the prefix cache.
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
    """One text that a beam search has found."""

    tokens: List[int]  # the prompt's and its own
    logprobs: SampleLogprobs
    cum_logprob: float
    text: str  # of all tokens
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: Optional[LoRARequest] = None


@dataclass
class BeamSearchOutput:
    """The texts of one prompt, likeliest first."""

    sequences: List[BeamSearchSequence] = field(default_factory=list)


@dataclass
class PoolingOutput:
    """What a pooler made of a prompt's states: an array of float32 of numpy, whose methods take torch's `dim` too."""

    data: "numpy.typing.NDArray[numpy.float32]"

    def __repr__(self) -> str:
        return f"PoolingOutput(data={self.data})"


@dataclass
class EmbeddingOutput:
    """A prompt's vector."""

    embedding: List[float]

    @property
    def hidden_size(self) -> int:
        """Of the vector."""
        return len(self.embedding)

    def __repr__(self) -> str:
        return f"EmbeddingOutput(hidden_size={self.hidden_size})"


@dataclass
class ClassificationOutput:
    """A prompt's probabilities, one per class."""

    probs: List[float]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.probs)

    def __repr__(self) -> str:
        return f"ClassificationOutput(num_classes={self.num_classes})"


@dataclass
class ScoringOutput:
    """How well two texts go together."""

    score: float

    def __repr__(self) -> str:
        return f"ScoringOutput(score={self.score})"


_O = TypeVar("_O")


@dataclass
class PoolingRequestOutput(Generic[_O]):
    """A request to a pooling model and what came of it."""

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
    """Of LLM.embed()."""


class ClassificationRequestOutput(PoolingRequestOutput[ClassificationOutput]):
    """Of LLM.classify()."""


class ScoringRequestOutput(PoolingRequestOutput[ScoringOutput]):
    """Of LLM.score()."""
