"""Runs vLLM's logits processors of batches (penstock.v1.sample.logits_processor) for single requests."""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence


from ._engine_rules import Opening

if TYPE_CHECKING:
    import numpy


def processor_class(named: Any) -> Any:
    """Returns the class of an element of LLM(logits_processors=...): a class or "module:Class". Errors: TypeError, ValueError."""
    if isinstance(named, str):
        module, colon, name = named.partition(":")
        if not colon:
            raise ValueError(f"logits_processors: expected 'module:Class', got {named!r}")
        named = getattr(importlib.import_module(module), name)
    if not isinstance(named, type) or not callable(getattr(named, "apply", None)) or not callable(
            getattr(named, "update_state", None)):
        raise TypeError("logits_processors: expected classes with update_state() and apply(), or their names 'module:Class', got "
                        f"{named!r}; functions are given to SamplingParams(logits_processors=[...])")
    return named


class _Device:
    """A substitute for torch.device if torch is not installed."""

    type = "cpu"
    index: Optional[int] = None

    def __str__(self) -> str:
        return "cpu"


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


class OfOneRequest:
    """Runs a processor of batches with a batch of one sequence. When a call is for another sequence than the last one (one of the
    request's n, or a draft of speculation), the processor is told of a new request."""

    def __init__(self, kind: Any, params: Any, opening: Opening) -> None:
        from .config import vllm_config_of

        self._torch = _torch()
        device = _Device() if self._torch is None else self._torch.device("cpu")
        self._processor = kind(vllm_config_of(opening), device, False)
        self._params = params
        self._output: Optional[List[int]] = None

    def __call__(self, prompt_token_ids: List[int], token_ids: List[int], logits: "numpy.ndarray[Any, Any]") -> None:
        import numpy  # imported lazily: numpy's threads would receive the program's signals

        from .v1.sample.logits_processor import BatchUpdate

        if self._output is not None and token_ids[:-1] == self._output and len(token_ids) == len(self._output) + 1:
            self._output.append(token_ids[-1])
            self._processor.update_state(None)
        else:
            removed = [] if self._output is None else [0]
            self._output = list(token_ids)
            self._processor.update_state(BatchUpdate(1, removed, [(0, self._params, prompt_token_ids, self._output)], []))
        batch: Any = logits[None] if self._torch is None else self._torch.from_numpy(logits)[None]
        changed = self._processor.apply(batch)
        logits[:] = numpy.asarray(changed)[0]


_Functions = List[Callable[..., None]]


def processors_of_request(opening: Opening, params: Any) -> _Functions:
    """Returns the engine's processors as functions of (prompt_token_ids, token_ids, logits)."""
    return [OfOneRequest(processor_class(named), params, opening) for named in opening.logits_processors]


def replay(trace: Sequence[int], n_vocab: int) -> Callable[..., None]:
    """Returns the logits processor that chooses the tokens of a trace one after the other. Errors: ValueError, for tokens that the
    model does not have."""
    for token in trace:
        if token >= n_vocab:
            raise ValueError(f"trace_decode_token_ids: expected tokens below {n_vocab}, got {token}")

    def choose(token_ids: List[int], logits: "numpy.ndarray[Any, Any]") -> None:
        if len(token_ids) < len(trace):
            logits[:] = -float("inf")
            logits[trace[len(token_ids)]] = 0.0
    return choose


def check_extra_args(opening: Opening, params: Any) -> None:
    """Checks the parameters' extra_args. Errors: ValueError, when the engine has no processors; those of the processors."""
    extra: Optional[Dict[str, Any]] = getattr(params, "extra_args", None)
    if extra and not opening.logits_processors:
        raise ValueError("extra_args: nothing reads them: the engine has no logits_processors")
    for named in opening.logits_processors:
        check = getattr(processor_class(named), "validate_params", None)
        if check is not None:
            check(params)
