"""Parameters of generation: vLLM's `SamplingParams` and related classes, with Penstock's additional fields."""
from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

# f(output_token_ids, logits) or f(prompt_token_ids, output_token_ids, logits): changes logits, an array of float32
# [vocab_size], in place, or returns others.
LogitsProcessor = Callable[..., Any]

_EPSILON = 1e-5
_LOWEST_TEMPERATURE = 1e-2
_MOST_BIAS = 100.0


class RequestOutputKind(Enum):
    """The content of a streamed request's outputs."""

    CUMULATIVE = 0  # each output has everything so far
    DELTA = 1  # each output has only what is new
    FINAL_ONLY = 2  # only one output, at the end


@dataclass
class StructuredOutputsParams:
    """Constraints on a text. Exactly one of the first six fields must be set; json: a JSON Schema or its text."""

    json: Optional[Union[str, Dict[str, Any]]] = None
    regex: Optional[str] = None
    choice: Optional[List[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None
    structural_tag: Optional[Union[str, Dict[str, Any]]] = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: Optional[str] = None
    complete_within_max_tokens: bool = False  # Penstock's: the text is completed within max_tokens
    additional_properties: bool = False  # Penstock's: objects may have members that their schema does not name

    def __post_init__(self) -> None:
        given = [name for name in ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
                 if getattr(self, name) is not None and getattr(self, name) is not False]
        if len(given) != 1:
            raise ValueError("structured_outputs: expected exactly one of json, regex, choice, grammar, json_object and "
                             f"structural_tag, got {', '.join(given) or 'none'}")
        if self.choice is not None and not self.choice:
            raise ValueError("structured_outputs: choice: expected at least one text, got []")
        if self.additional_properties and self.disable_additional_properties:
            raise ValueError("structured_outputs: additional_properties: cannot be True beside disable_additional_properties")

    def _as_dict(self) -> Dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)
                if getattr(self, f.name) is not None and getattr(self, f.name) is not False}

# Fields that are not passed to the engine, or under another name.
_NOT_THE_ENGINES = {"logprob_token_ids", "flat_logprobs", "detokenize", "spaces_between_special_tokens", "output_kind",
                    "skip_clone", "structured_outputs", "extra_args", "skip_reading_prefix_cache", "thinking_token_budget",
                    "repetition_detection", "stream_interval", "logits_processors", "trace_decode_token_ids", "watermarking",
                    "prompt_logprob_token_ids", "prompt_logprob_start", "routed_experts_prompt_start"}
# Fields that cannot be set with trace_decode_token_ids: they ask for other tokens, or for what a replay does not have.
_NOT_OF_REPLAYS = ("prompt_logprobs", "structured_outputs", "thinking_token_budget", "bad_words")


def _refuse(name: str, why: str) -> None:
    raise ValueError(f"{name}: {why}")


@dataclass
class SamplingParams:
    """The sampling parameters of one request, with vLLM's names and defaults.

    Unsupported fields of vLLM are refused when they are set. A temperature below 1e-5 is greedy; one
    below 0.01 is raised to 0.01. `max_tokens=None`: as many as fit into the context. `seed=-1`: none.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None
    stop: Optional[Union[str, List[str]]] = None
    stop_token_ids: Optional[List[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    logprob_token_ids: Optional[List[int]] = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    skip_clone: bool = False
    structured_outputs: Optional[StructuredOutputsParams] = None
    logit_bias: Optional[Dict[int, float]] = None
    allowed_token_ids: Optional[List[int]] = None
    extra_args: Optional[Dict[str, Any]] = None  # arguments of the engine's logits_processors
    bad_words: Optional[List[str]] = None
    skip_reading_prefix_cache: Optional[bool] = None
    thinking_token_budget: Optional[int] = None
    repetition_detection: Optional[Any] = None
    stream_interval: Optional[int] = None
    trace_decode_token_ids: Optional[List[int]] = None  # tokens that are generated whatever the model says: enable_trace_replay
    watermarking: Optional[bool] = None
    prompt_logprob_token_ids: Optional[Any] = None
    prompt_logprob_start: Optional[int] = None
    routed_experts_prompt_start: int = 0
    # Penstock's own.
    typical_p: float = 1.0
    penalty_last_n: int = -1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: List[str] = field(default_factory=lambda: ["\n", ":", '"', "*"])
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    banned_token_ids: Optional[List[int]] = None
    logits_processors: Optional[Sequence[LogitsProcessor]] = None

    def __post_init__(self) -> None:
        for name in ("logprob_token_ids", "repetition_detection", "watermarking", "prompt_logprob_token_ids", "prompt_logprob_start",
                     "routed_experts_prompt_start"):
            if getattr(self, name) not in (None, False, 0, []):
                _refuse(name, "not supported")
        if self.flat_logprobs:
            _refuse("flat_logprobs", "not supported; logprobs are dictionaries by token id")
        if self.allowed_token_ids is not None and not len(self.allowed_token_ids):
            _refuse("allowed_token_ids", "expected at least one token id, got []")
        if isinstance(self.structured_outputs, dict):
            self.structured_outputs = StructuredOutputsParams(**self.structured_outputs)
        if self.seed == -1:
            self.seed = None
        if self.stop is None:
            self.stop = []
        elif isinstance(self.stop, str):
            self.stop = [self.stop]
        if not all(isinstance(text, str) and text for text in self.stop):
            _refuse("stop", "expected strings that are not empty")
        for name in ("stop_token_ids", "bad_words"):
            if getattr(self, name) is None:
                setattr(self, name, [])
        if self.stop and not self.detokenize:
            _refuse("stop", "strings are looked for in the text, which detokenize=False does not make")
        self._check_numbers()
        self._check_trace()
        if self.structured_outputs is not None and not isinstance(self.structured_outputs, StructuredOutputsParams):
            raise TypeError(f"structured_outputs: expected StructuredOutputsParams, got {type(self.structured_outputs).__name__}")
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, Mapping):
                raise TypeError(f"logit_bias: expected a dictionary, got {type(self.logit_bias).__name__}")
            self.logit_bias = {int(token): min(_MOST_BIAS, max(-_MOST_BIAS, float(bias)))
                               for token, bias in self.logit_bias.items()}
        if self.temperature < _EPSILON:
            if self.n > 1:
                _refuse("n", f"expected 1 when sampling is greedy, got {self.n}")
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0
        elif self.temperature < _LOWEST_TEMPERATURE:
            self.temperature = _LOWEST_TEMPERATURE
        if isinstance(self.logprobs, bool):
            self.logprobs = 1 if self.logprobs else None
        if isinstance(self.prompt_logprobs, bool):
            self.prompt_logprobs = 1 if self.prompt_logprobs else None

    def _check_numbers(self) -> None:
        """Checks the ranges of numbers at construction, before the engine does."""
        for name, least, most in (("n", 1, 1024), ("presence_penalty", -2, 2), ("frequency_penalty", -2, 2),
                                  ("temperature", 0, 1e6), ("min_p", 0, 1), ("top_k", -1, None), ("min_tokens", 0, None),
                                  ("logprobs", -1, None), ("prompt_logprobs", -1, None), ("thinking_token_budget", -1, None),
                                  ("stream_interval", 1, None)):
            value = getattr(self, name)
            if value is None:
                continue
            if value != value or value < least or (most is not None and value > most):
                _refuse(name, f"expected a number from {least}{'' if most is None else f' to {most}'}, got {value}")
        for name in ("top_p", "typical_p"):
            value = getattr(self, name)
            if value != value or not 0 < value <= 1:
                _refuse(name, f"expected a number above 0 and at most 1, got {value}")
        for name in ("max_tokens", "min_tokens", "repetition_penalty"):
            value = getattr(self, name)
            if value != value:  # of a type whose comparisons with numbers are errors: Decimal("NaN")
                _refuse(name, f"expected a number, got {value}")
        if not self.repetition_penalty > 0:
            _refuse("repetition_penalty", f"expected a number above 0, got {self.repetition_penalty}")
        if self.max_tokens is not None and self.max_tokens < 1 and self.prompt_logprobs is None:
            _refuse("max_tokens", f"expected at least 1, got {self.max_tokens}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _refuse("min_tokens", f"expected at most max_tokens ({self.max_tokens}), got {self.min_tokens}")

    def _check_trace(self) -> None:
        trace = self.trace_decode_token_ids
        if trace is None:
            return
        if not trace or not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in trace):
            _refuse("trace_decode_token_ids", f"expected token ids, got {str(trace)[:80]}")
        if self.n != 1:
            _refuse("n", f"expected 1 with trace_decode_token_ids, got {self.n}")
        for name in _NOT_OF_REPLAYS:
            value = getattr(self, name)
            if value is not None and value is not False and value != []:
                _refuse(name, "cannot be set with trace_decode_token_ids")

    @classmethod
    def from_optional(cls, **values: Any) -> "SamplingParams":
        """Returns parameters with defaults for the values that are None."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                raise TypeError(f"SamplingParams has no field {name!r}")
        kept: Dict[str, Any] = {name: value for name, value in values.items() if value is not None or name == "max_tokens"}
        return cls(**kept)

    def clone(self) -> "SamplingParams":
        """Returns a deep copy."""
        return copy.deepcopy(self)

    def _as_dict(self, structured: Mapping[str, Any] = MappingProxyType({})) -> Dict[str, Any]:
        """Returns the parameters as the engine's dictionary. structured: defaults of structured outputs."""
        if self.trace_decode_token_ids is not None:
            return self._of_replay()
        out: Dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in _NOT_THE_ENGINES and (value is not None or each.name == "max_tokens"):
                out[each.name] = value
        if self.structured_outputs is not None:
            out["structured_outputs"] = {**structured, **self.structured_outputs._as_dict()}
        if self.thinking_token_budget is not None and self.thinking_token_budget >= 0:
            out["thinking_token_budget"] = self.thinking_token_budget
        if self.skip_reading_prefix_cache:
            out["read_prefix_cache"] = False
        return out

    def _of_replay(self) -> Dict[str, Any]:
        """Returns the engine's dictionary for trace_decode_token_ids, whose tokens a logits processor chooses: nothing else chooses
        tokens or ends the text."""
        most = len(self.trace_decode_token_ids or ())
        return SamplingParams(temperature=0, ignore_eos=True, logprobs=self.logprobs, skip_special_tokens=self.skip_special_tokens,
                              skip_reading_prefix_cache=self.skip_reading_prefix_cache,
                              max_tokens=most if self.max_tokens is None else min(most, self.max_tokens))._as_dict()


@dataclass
class BeamSearchParams:
    """Parameters of a beam search for the most likely texts: `beam_width` texts are followed and returned."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    structured_outputs: Optional[StructuredOutputsParams] = None
    skip_special_tokens: bool = True
    allowed_token_ids: Optional[List[int]] = None

    def __post_init__(self) -> None:
        if self.beam_width != self.beam_width or not 1 <= self.beam_width <= 256:
            _refuse("beam_width", f"expected a number from 1 to 256, got {self.beam_width}")
        if self.max_tokens != self.max_tokens or self.max_tokens < 1:
            _refuse("max_tokens", f"expected at least 1, got {self.max_tokens}")
        if self.temperature != 0.0:
            _refuse("temperature", f"beams are ranked by the model's own probabilities: expected 0, got {self.temperature}")

    def _as_dict(self, structured: Mapping[str, Any] = MappingProxyType({})) -> Dict[str, Any]:
        out = SamplingParams(max_tokens=self.max_tokens, ignore_eos=self.ignore_eos, temperature=1.0,
                             include_stop_str_in_output=self.include_stop_str_in_output,
                             structured_outputs=self.structured_outputs, allowed_token_ids=self.allowed_token_ids,
                             skip_special_tokens=self.skip_special_tokens, logprobs=0)._as_dict(structured)
        out.update(use_beam_search=True, beam_width=self.beam_width, n=self.beam_width, length_penalty=self.length_penalty)
        return out

