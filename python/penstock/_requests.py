"""Requests that one caller follows, from prompts to outputs."""
from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _core
from ._adapters import Adapters
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


def prepared(session: _core.ModelSession, params: AnyParams) -> _core.PreparedParams:
    """Parameters as the engine takes them; their grammar is compiled here. ValueError."""
    return session.prepare(params._as_dict())


@dataclass
class _Open:
    request_id: str
    prompt: ParsedPrompt
    params: AnyParams
    arrival: float  # since the epoch
    queued: float  # monotonic
    lora: Optional[LoRARequest] = None
    # Of a request that streams: what has come of each sequence so far.
    so_far: Dict[int, CompletionOutput] = field(default_factory=dict)
    prompt_ids: Optional[List[int]] = None


class Requests:
    """Submits, and gives outputs. One thread polls; others may submit and cancel."""

    def __init__(self, session: _core.ModelSession, adapters: Adapters) -> None:
        self._session = session
        self._adapters = adapters
        self._core = _core.Completions(session)
        self._open: Dict[int, _Open] = {}
        # News of a request may be there before submit() has noted its number.
        self._lock = threading.Lock()

    @property
    def n_open(self) -> int:
        """Requests that have not come to their end."""
        return len(self._open)

    def submit(self, request_id: str, prompt: ParsedPrompt, params: AnyParams, ready: _core.PreparedParams, priority: int = 1,
               stream: bool = False, lora: Optional[LoRARequest] = None) -> int:
        """Gives the number by which to cancel it. Errors of the engine: ValueError, MemoryError (its queue is full)."""
        processors = _NO_PROCESSORS
        given = getattr(params, "logits_processors", None)
        if given:
            processors = [(function, _takes_prompt(function)) for function in given]
        entry = _Open(request_id, prompt, params, time.time(), time.monotonic(), lora)
        adapter = self._adapters.get(lora)
        with self._lock:
            number = self._core.submit(prompt.content, ready, processors, priority, prompt.cache_salt, stream,
                                       adapter=adapter)
            self._open[number] = entry
        return number

    def cancel(self, number: int) -> None:
        """Ends a request; its last output still comes."""
        self._core.cancel(number)

    def cancel_all(self) -> None:
        """Ends them all, and waits for their ends."""
        for number in list(self._open):
            self._core.cancel(number)
        deadline = time.monotonic() + 10
        while self._open and time.monotonic() < deadline:
            self.poll(0.05)

    def poll(self, seconds: float) -> List[Tuple[int, Union[RequestOutput, BaseException]]]:
        """Waits for news at most this long: outputs of requests that stream as they come, of others at their end; and what a
        logits processor has raised, which ends its request."""
        news: List[Tuple[int, Union[RequestOutput, BaseException]]] = []
        for number, index, text, tokens, rows, _, done in self._core.poll(seconds):
            with self._lock:
                entry = self._open.pop(number) if done is not None else self._open[number]
            if isinstance(done, BaseException):
                news.append((number, done))
            elif done is not None:
                news.append((number, self._final(entry, done, index, text, tokens, rows)))
            else:
                news.append((number, self._piece(entry, index, text, tokens, rows)))
        return news

    def _piece(self, entry: _Open, index: int, text: str, tokens: List[int], rows: Optional[List[Row]]) -> RequestOutput:
        new = CompletionOutput(index, text, tokens, None, None)
        if rows is not None:
            new.logprobs = [self._row(row) for row in rows]
            new.cumulative_logprob = sum(row[0][1] for row in rows)
        if isinstance(entry.params, SamplingParams) and entry.params.output_kind is RequestOutputKind.DELTA:
            return RequestOutput(entry.request_id, entry.prompt.text, entry.prompt.token_ids, None, [new], False,
                                 lora_request=entry.lora)
        whole = entry.so_far.get(index)
        if whole is None:
            entry.so_far[index] = whole = CompletionOutput(index, "", [], 0.0 if rows is not None else None,
                                                           [] if rows is not None else None)
        whole.text += text
        whole.token_ids = whole.token_ids + tokens
        if new.logprobs is not None and whole.logprobs is not None:
            whole.logprobs = whole.logprobs + new.logprobs
            whole.cumulative_logprob = (whole.cumulative_logprob or 0.0) + (new.cumulative_logprob or 0.0)
        outputs = [CompletionOutput(o.index, o.text, o.token_ids, o.cumulative_logprob, o.logprobs)
                   for _, o in sorted(entry.so_far.items())]
        return RequestOutput(entry.request_id, entry.prompt.text, entry.prompt.token_ids, None, outputs, False,
                             lora_request=entry.lora)

    def _final(self, entry: _Open, done: Any, index: int, text: str, tokens: List[int],
               rows: Optional[List[Row]]) -> RequestOutput:
        prompt_ids, prompt_rows, raw_outputs = done
        detokenize = getattr(entry.params, "detokenize", True)
        outputs: List[CompletionOutput] = []
        for number, whole_text, ids, logprob_sum, one_rows, finish, stop, _, error in raw_outputs:
            logprobs = None if one_rows is None else [self._row(row) for row in one_rows]
            outputs.append(CompletionOutput(number, whole_text if detokenize else "", ids,
                                            None if logprobs is None else logprob_sum, logprobs, None, finish or None, stop,
                                            None, error))
        stats = self._stats(entry, [raw[7] for raw in raw_outputs])
        kind = getattr(entry.params, "output_kind", RequestOutputKind.FINAL_ONLY)
        result = RequestOutput(entry.request_id, entry.prompt.text, prompt_ids, self._prompt_logprobs(prompt_rows), outputs, True,
                               stats, num_cached_tokens=raw_outputs[0][7][0], lora_request=entry.lora)
        if kind is RequestOutputKind.DELTA:
            # Sequences that ended before have been told; of the last one what is new.
            last = outputs[index]
            last.text, last.token_ids = text, tokens
            last.logprobs = None if rows is None else [self._row(row) for row in rows]
        return result

    def _row(self, row: Row) -> LogprobsOnePosition:
        texts = self._session.token_texts([token for token, _, _ in row])
        return {token: Logprob(logprob, rank or None, text) for (token, logprob, rank), text in zip(row, texts)}

    def _prompt_logprobs(self, rows: Optional[List[Row]]) -> Optional[PromptLogprobs]:
        if rows is None:
            return None
        return [self._row(row) if row else None for row in rows]

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

