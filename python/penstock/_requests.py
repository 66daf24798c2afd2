"""Submits the requests of one caller and converts engine events to outputs."""
from __future__ import annotations

import copy
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _core
from ._adapters import Adapters
from ._engine_rules import Opening
from ._logits_processors import processors_of_request, replay
from .inputs import ParsedPrompt
from .logprobs import Logprob, LogprobsOnePosition, PromptLogprobs
from .lora.request import LoRARequest
from .outputs import CompletionOutput, RequestOutput, RequestStateStats
from .sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams

AnyParams = Union[SamplingParams, BeamSearchParams]
Row = Sequence[Tuple[int, float, int]]

_NO_PROCESSORS: List[Tuple[Any, bool]] = []


def _takes_prompt(processor: Any) -> bool:
    """Whether a logits processor is f(prompt, output, logits) and not f(output, logits)."""
    import inspect

    parameters = list(inspect.signature(processor).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) == 3:
        return True
    if len(required) == 2 or any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return False
    raise ValueError(f"logits_processors: expected a function of (token_ids, logits) or (prompt_token_ids, token_ids, logits), "
                     f"got one of {len(required)} arguments")


def prepared(session: _core.ModelSession, params: AnyParams, opening: Opening) -> _core.PreparedParams:
    """Converts parameters for the engine and compiles their grammar. Errors: ValueError."""
    defaults = opening.structured
    given = getattr(params, "structured_outputs", None)
    names = [name for name in ("disable_any_whitespace", "disable_additional_properties") if getattr(defaults, name)]
    if defaults.additional_properties and not getattr(given, "disable_additional_properties", False):
        names.append("additional_properties")
    return session.prepare(params._as_dict(dict.fromkeys(names, True)))


def encoded(prompt: ParsedPrompt) -> Optional[_core.EncodedPictures]:
    """Returns the rows of a prompt's pictures, which takes time; None: it has none. Errors: ValueError, MemoryError."""
    return None if prompt.pictures is None else prompt.pictures.encode()


def joined(first: RequestOutput, second: RequestOutput) -> RequestOutput:
    """Merges two consecutive outputs of a request with RequestOutputKind.DELTA."""
    parts = {part.index: part for part in first.outputs}
    for part in second.outputs:
        before = parts.get(part.index)
        if before is not None:
            part.text = before.text + part.text
            part.token_ids = before.token_ids + part.token_ids
            if before.logprobs is not None and part.logprobs is not None:
                part.logprobs = before.logprobs + part.logprobs
        parts[part.index] = part
    second.outputs = [part for _, part in sorted(parts.items())]
    return second


@dataclass
class _Open:
    request_id: str
    prompt: ParsedPrompt
    params: AnyParams
    arrival: float  # time of arrival, seconds since the epoch
    queued: float  # time of arrival by time.monotonic()
    lora: Optional[LoRARequest] = None
    stream: bool = False
    # Streaming requests: output of each sequence so far; with DELTA only its sum of log-probabilities.
    so_far: Dict[int, CompletionOutput] = field(default_factory=dict)

    @property
    def delta(self) -> bool:
        """Whether outputs hold only new text (RequestOutputKind.DELTA)."""
        return self.stream and getattr(self.params, "output_kind", None) is RequestOutputKind.DELTA


class Requests:
    """Submits requests and returns their outputs. One thread calls poll(); any thread may submit and cancel."""

    def __init__(self, session: _core.ModelSession, adapters: Adapters, opening: Opening) -> None:
        self._tokenizer = session.tokenizer()
        self._n_vocab = int(session.info()["vocab_size"])
        self._adapters = adapters
        self._opening = opening
        self._core = _core.Completions(session)
        self._open: Dict[int, _Open] = {}
        # The first event of a request may arrive before submit() has stored its number.
        self._lock = threading.Lock()

    @property
    def n_open(self) -> int:
        """Number of unfinished requests."""
        return len(self._open)

    def submit(self, request_id: str, prompt: ParsedPrompt, params: AnyParams, ready: _core.PreparedParams, priority: int = 1,
               stream: bool = False, lora: Optional[LoRARequest] = None, arrival: Optional[float] = None,
               pictures: Optional[_core.EncodedPictures] = None) -> int:
        """Submits a request and returns its number, for cancel(). arrival: its time of arrival, seconds since the epoch; None: now.
        pictures: encoded(prompt); None: encoded here. Errors: ValueError, MemoryError (the engine's queue is full)."""
        if pictures is None:
            pictures = encoded(prompt)
        processors = _NO_PROCESSORS
        given: List[Callable[..., Any]] = list(getattr(params, "logits_processors", None) or ())
        if self._opening.logits_processors:
            given += processors_of_request(self._opening, params)
        trace = getattr(params, "trace_decode_token_ids", None)
        if trace is not None:
            given.append(replay(trace, self._n_vocab))
        if given:
            processors = [(function, _takes_prompt(function)) for function in given]
        entry = _Open(request_id, prompt, params, time.time() if arrival is None else arrival, time.monotonic(), lora, stream)
        adapter = self._adapters.get(lora)
        with self._lock:
            number = self._core.submit(prompt.content, ready, processors, priority, prompt.cache_salt, stream,
                                       adapter=adapter, pictures=pictures)
            self._open[number] = entry
        return number

    def cancel(self, number: int) -> None:
        """Cancels a request; its final output is still delivered."""
        self._core.cancel(number)

    def cancel_all(self) -> None:
        """Cancels all requests and waits for their ends."""
        for number in list(self._open):
            self._core.cancel(number)
        deadline = time.monotonic() + 10
        while self._open and time.monotonic() < deadline:
            self.poll(0.05)

    def poll(self, seconds: float) -> List[Tuple[int, Union[RequestOutput, BaseException]]]:
        """Waits at most `seconds` and returns (number, output) pairs: outputs of streaming requests as they come, of others at
        their end; or the exception of a logits processor, which ends its request."""
        news: List[Tuple[int, Union[RequestOutput, BaseException]]] = []
        for number, index, text, tokens, rows, end, done in self._core.poll(seconds):
            with self._lock:
                entry = self._open.pop(number) if done is not None else self._open[number]
            if isinstance(done, BaseException):
                news.append((number, done))
            elif done is not None:
                news.append((number, self._final(entry, done, index, text, tokens, rows)))
            else:
                news.append((number, self._piece(entry, self._new(entry, index, text, tokens, rows, end))))
        return news

    def _new(self, entry: _Open, index: int, text: str, tokens: List[int], rows: Optional[List[Row]],
             end: Optional[Tuple[str, Union[int, str, None], Optional[str]]]) -> CompletionOutput:
        """Returns the new part of a sequence; cumulative_logprob is the sum over all its tokens."""
        new = CompletionOutput(index, text if self._in_text(entry) else "", tokens)
        if rows is not None:
            new.logprobs = self._rows(entry, rows)
            before = entry.so_far.get(index)
            new.cumulative_logprob = ((before.cumulative_logprob or 0.0) if before is not None else 0.0) + sum(
                row[0][1] for row in rows)
        if end is not None:
            new.finish_reason, new.stop_reason, new.error = end[0] or None, end[1], end[2]
        return new

    def _piece(self, entry: _Open, new: CompletionOutput) -> RequestOutput:
        whole = entry.so_far.get(new.index)
        if whole is None:
            entry.so_far[new.index] = whole = CompletionOutput(new.index, "", [], None, None if new.logprobs is None else [])
        whole.cumulative_logprob = new.cumulative_logprob
        outputs = [new]
        if not entry.delta:
            whole.text += new.text
            whole.token_ids = whole.token_ids + new.token_ids
            if new.logprobs is not None and whole.logprobs is not None:
                whole.logprobs = whole.logprobs + new.logprobs
            whole.finish_reason, whole.stop_reason, whole.error = new.finish_reason, new.stop_reason, new.error
            outputs = [copy.copy(one) for _, one in sorted(entry.so_far.items())]
        return RequestOutput(entry.request_id, entry.prompt.text, entry.prompt.token_ids, None, outputs, False,
                             lora_request=entry.lora)

    def _final(self, entry: _Open, done: Any, index: int, text: str, tokens: List[int],
               rows: Optional[List[Row]]) -> RequestOutput:
        prompt_ids, prompt_rows, raw_outputs = done
        outputs: List[CompletionOutput] = []
        for number, whole_text, ids, logprob_sum, one_rows, finish, stop, _, error in raw_outputs:
            if entry.delta and number != index:
                continue  # ended before; its final output was delivered
            if entry.delta:
                whole_text, ids, one_rows = text, tokens, rows
            logprobs = None if one_rows is None else self._rows(entry, one_rows)
            outputs.append(CompletionOutput(number, whole_text if self._in_text(entry) else "", ids,
                                            None if logprobs is None else logprob_sum, logprobs, None, finish or None, stop,
                                            None, error))
        stats = self._stats(entry, [raw[7] for raw in raw_outputs])
        return RequestOutput(entry.request_id, entry.prompt.text, prompt_ids, self._prompt_logprobs(entry, prompt_rows), outputs,
                             True, stats, num_cached_tokens=raw_outputs[0][7][0], lora_request=entry.lora)

    def _in_text(self, entry: _Open) -> bool:
        return getattr(entry.params, "detokenize", True) and not self._opening.skip_tokenizer

    def _rows(self, entry: _Open, rows: List[Row]) -> List[LogprobsOnePosition]:
        if self._in_text(entry):
            return [self._row(row) for row in rows]
        return [{token: Logprob(logprob, rank or None) for token, logprob, rank in row} for row in rows]

    def _row(self, row: Row) -> LogprobsOnePosition:
        texts = self._tokenizer.token_texts([token for token, _, _ in row])
        return {token: Logprob(logprob, rank or None, text) for (token, logprob, rank), text in zip(row, texts)}

    def _prompt_logprobs(self, entry: _Open, rows: Optional[List[Row]]) -> Optional[PromptLogprobs]:
        if rows is None:
            return None
        return [self._rows(entry, [row])[0] if row else None for row in rows]

    @staticmethod
    def _stats(entry: _Open, stats: List[Any]) -> RequestStateStats:
        queued_seconds, prefill_seconds = stats[0][7], stats[0][8]
        decode_seconds = max(one[9] for one in stats)
        scheduled = entry.queued + queued_seconds
        first = scheduled + prefill_seconds
        return RequestStateStats(
            num_generation_tokens=sum(one[1] for one in stats), num_preemptions=max(one[2] for one in stats),
            arrival_time=entry.arrival, queued_ts=entry.queued, scheduled_ts=scheduled, first_token_ts=first,
            last_token_ts=first + decode_seconds, first_token_latency=queued_seconds + prefill_seconds,
            finished_time=time.time(), num_drafts=sum(one[3] for one in stats), num_draft_tokens=sum(one[4] for one in stats),
            num_accepted_tokens=sum(one[5] for one in stats))

