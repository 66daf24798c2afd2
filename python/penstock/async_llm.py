"""Streams of tokens in an event loop: vLLM's `AsyncLLM`."""
from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, AsyncGenerator, Dict, List, Optional, Set, Tuple, Union

from . import _core, metrics
from ._adapters import Adapters
from ._lifetime import closes_at_exit
from ._requests import Requests, prepared
from .engine_args import AsyncEngineArgs, EngineArgs
from .errors import EngineError
from .inputs import parse_prompt, truncated
from .llm import check_params, default_params, priority_level
from .lora.request import LoRARequest
from .outputs import RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer

_POLL_SECONDS = 0.1
News = Union[RequestOutput, BaseException]


class _Stream:
    """The news of one request on their way into an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request_id: str) -> None:
        self.loop = loop
        self.request_id = request_id
        self.queue: "asyncio.Queue[News]" = asyncio.Queue()


class AsyncLLM:
    """An engine whose requests are asynchronous generators. Arguments are LLM's.

    All methods may be called from any event loop's thread; requests of all share the engine's batch.
    """

    def __init__(self, model: Any = "", **arguments: Any) -> None:
        args = model if isinstance(model, EngineArgs) else AsyncEngineArgs(model, **arguments)
        self.args = args
        args.config["model"], _ = _core.find_model(args.config["model"])
        self._session = _core.ModelSession(args.config)
        self._adapters = Adapters(self._session, args.enable_lora)
        self._requests = Requests(self._session, self._adapters)
        self._streams: Dict[int, _Stream] = {}
        self._numbers: Dict[str, int] = {}
        self._lock = threading.Lock()
        self._stop = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-async", daemon=True)
        self._thread.start()
        closes_at_exit(self)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **_: Any) -> "AsyncLLM":
        """With arguments that are read already."""
        return cls(engine_args)

    async def generate(self, prompt: Any, sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None, *,
                       lora_request: Any = None, priority: int = 0, trace_headers: Optional[Dict[str, str]] = None,
                       tokenization_kwargs: Optional[Dict[str, Any]] = None) -> AsyncGenerator[RequestOutput, None]:
        """Outputs as they come: everything so far, what is new, or one at the end (`sampling_params.output_kind`). When the
        generator is closed or its task cancelled, the request ends.

        Raises:
            ValueError: a prompt or a parameter that the engine cannot take, or a request_id that runs already.
            EngineError: the request failed inside the engine, or the engine was closed.
        """
        params = sampling_params if sampling_params is not None else default_params(self._session, self.args)
        check_params(params, self.args)
        level = priority_level(priority, self.args)
        loop = asyncio.get_running_loop()
        stream = _Stream(loop, request_id or "")
        number = await loop.run_in_executor(None, self._submit, prompt, params, request_id, level, tokenization_kwargs, stream,
                                            lora_request)
        final_only = params.output_kind is RequestOutputKind.FINAL_ONLY
        interval = params.stream_interval or 1
        n_held = 0
        try:
            while True:
                news = await stream.queue.get()
                if isinstance(news, BaseException):
                    raise news
                if not news.finished:
                    n_held += 1
                    if final_only or (n_held < interval and params.output_kind is RequestOutputKind.CUMULATIVE):
                        continue
                    n_held = 0
                for one in news.outputs:
                    if one.finish_reason == "error":
                        raise EngineError(one.error or "the request failed")
                yield news
                if news.finished:
                    return
        finally:
            with self._lock:
                running = self._streams.pop(number, None) is not None
                if running:
                    self._numbers.pop(stream.request_id, None)
            if running:
                self._requests.cancel(number)

    def _submit(self, prompt: Any, params: SamplingParams, request_id: Optional[str], level: int,
                options: Optional[Dict[str, Any]], stream: _Stream, lora: Optional[LoRARequest]) -> int:
        """In a thread of the loop's pool: a long text takes time to become tokens."""
        parsed = parse_prompt(prompt)
        if options:
            parsed = truncated(parsed, options, self._session.encode, self._session.info()["max_model_len"])
        if parsed.token_ids is None:
            parsed.token_ids = self._session.encode(parsed.text or "")
        ready = prepared(self._session, params)
        self._adapters.get(lora)
        with self._lock:
            if self._stop:
                raise EngineError("the engine is closed")
            if request_id is not None and request_id in self._numbers:
                raise ValueError(f"request_id: {request_id!r} is running already")
            number = self._requests.submit(request_id or "", parsed, params, ready, level,
                                           stream=params.output_kind is not RequestOutputKind.FINAL_ONLY, lora=lora)
            self._streams[number] = stream
            if request_id is not None:
                self._numbers[request_id] = number
        self._wake.set()
        return number

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        """Opens an adapter before requests name it; whether it is a new one. Errors as generate() has them."""
        new = lora_request.lora_int_id not in self._adapters.numbers()
        await asyncio.get_running_loop().run_in_executor(None, self._adapters.get, lora_request)
        return new

    async def remove_lora(self, lora_id: int) -> bool:
        """Forgets an adapter; requests that have it go on. Whether there was one."""
        return self._adapters.remove(lora_id)

    async def list_loras(self) -> Set[int]:
        """Numbers of the adapters that were named."""
        return self._adapters.numbers()

    def _follow(self) -> None:
        """The thread that brings news from the engine to the event loops."""
        while not self._stop:
            if self._requests.n_open == 0:
                self._wake.wait(_POLL_SECONDS)
                self._wake.clear()
                continue
            news = self._requests.poll(_POLL_SECONDS)
            by_loop: Dict[asyncio.AbstractEventLoop, List[Tuple[_Stream, News]]] = {}
            with self._lock:
                for number, output in news:
                    stream = self._streams.get(number)
                    if isinstance(output, BaseException) or output.finished:
                        self._streams.pop(number, None)
                        if stream is not None:
                            self._numbers.pop(stream.request_id, None)
                    if stream is not None:
                        by_loop.setdefault(stream.loop, []).append((stream, output))
            for loop, batch in by_loop.items():
                self._call(loop, batch)

    @staticmethod
    def _call(loop: asyncio.AbstractEventLoop, batch: List[Tuple[_Stream, News]]) -> None:
        def put() -> None:
            for stream, one in batch:
                stream.queue.put_nowait(one)

        try:
            loop.call_soon_threadsafe(put)
        except RuntimeError:  # the loop was closed: nobody waits any more
            pass

    def _tell_all(self, error: BaseException) -> None:
        with self._lock:
            streams = list(self._streams.values())
            for number in self._streams:
                self._requests.cancel(number)
            self._streams.clear()
            self._numbers.clear()
        for stream in streams:
            self._call(stream.loop, [(stream, error)])

    async def abort(self, request_id: Union[str, List[str]]) -> None:
        """Ends requests by their names; unknown ones are ignored. Their generators get a last output."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            with self._lock:
                number = self._numbers.get(name)
            if number is not None:
                self._requests.cancel(number)

    async def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return Tokenizer(self._session, self.args.chat_template)

    async def get_metrics(self) -> List[metrics.Metric]:
        """What the engine has counted until now."""
        return metrics.snapshot(self._session.metrics(), os.path.basename(self.args.model_name))

    async def get_default_sampling_params(self) -> SamplingParams:
        """The checkpoint's generation_config over vLLM's defaults."""
        return default_params(self._session, self.args)

    async def is_tracing_enabled(self) -> bool:
        """No traces are sent."""
        return False

    async def check_health(self) -> None:
        """EngineError when the engine cannot go on."""
        if self._stop or self._session.closed:
            raise EngineError("the engine is closed")

    async def reset_prefix_cache(self) -> bool:
        """Forgets the blocks of former prompts."""
        self._session.reset_prefix_cache()
        return True

    @property
    def is_running(self) -> bool:
        """Whether requests are taken."""
        return not self._stop

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Ends what runs and frees the memory; generators that wait get an EngineError."""
        if self._stop:
            return
        self._stop = True
        self._wake.set()
        self._thread.join()
        self._tell_all(EngineError("the engine was closed"))
        self._session.close()

    close = shutdown


AsyncLLMEngine = AsyncLLM
