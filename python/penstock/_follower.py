"""The requests of asynchronous callers, and the thread that passes their outputs to event loops."""
from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _core
from ._adapters import Adapters
from ._engine_rules import Opening
from ._requests import Requests
from .errors import EngineError
from .outputs import RequestOutput

_POLL_SECONDS = 0.1
News = Union[RequestOutput, BaseException]


class Stream:
    """The queue of one request's outputs to an event loop. The number is that of the request, None until it is submitted; a stream
    that was left has no reader any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request_id: str) -> None:
        self.loop = loop
        self.request_id = request_id
        self.queue: "asyncio.Queue[News]" = asyncio.Queue()
        self.number: Optional[int] = None
        self.left = False


class Follower:
    """An engine with its asynchronous requests by name. It has no reference to its owner, whose finalizer calls close() to end the
    thread and free the engine. Thread-safe."""

    def __init__(self, opening: Opening) -> None:
        self.session = _core.ModelSession(opening.config)
        self.adapters = Adapters(self.session, opening.enable_lora)
        self._requests: Optional[Requests] = Requests(self.session, self.adapters, opening)
        self._streams: Dict[int, Stream] = {}
        self._numbers: Dict[str, int] = {}
        self._lock = threading.RLock()  # reentrant: a finalizer that runs while it is held may call close()
        self._closed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-async", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether new requests are refused."""
        return self._closed

    @property
    def n_open(self) -> int:
        """Number of unfinished requests."""
        requests = self._requests
        return 0 if requests is None else requests.n_open

    def numbers(self, names: Optional[Sequence[str]] = None) -> List[int]:
        """Returns the numbers of the requests with these names, or of all; unknown names are omitted."""
        with self._lock:
            if names is None:
                return list(self._streams)
            return [self._numbers[name] for name in names if name in self._numbers]

    def submit(self, request_id: Optional[str], stream: Stream, send: Callable[[Requests], int]) -> None:
        """Registers a request that `send` submits, unless its stream was left. Errors: EngineError, ValueError (the name is taken),
        and those of `send`."""
        with self._lock:
            if self._closed or self._requests is None:
                raise EngineError("the engine is closed")
            if stream.left:
                return
            if request_id is not None and request_id in self._numbers:
                raise ValueError(f"request_id: {request_id!r} is running already")
            stream.number = number = send(self._requests)
            self._streams[number] = stream
            if request_id is not None:
                self._numbers[request_id] = number
        self._wake.set()

    def leave(self, stream: Stream) -> None:
        """Ends the request of a stream that nobody reads any more, also one that another thread is about to submit."""
        with self._lock:
            stream.left = True
            number = stream.number
            if number is None or self._streams.pop(number, None) is None:
                return
            self._numbers.pop(stream.request_id, None)
        self.cancel([number])

    def cancel(self, numbers: Sequence[int]) -> None:
        """Cancels requests; their final outputs are still delivered."""
        requests = self._requests
        if requests is not None:
            for number in numbers:
                requests.cancel(number)

    def wait(self, numbers: Sequence[int], seconds: Optional[float] = None) -> None:
        """Waits until these requests have ended, at most `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while set(numbers).intersection(self.numbers()) and (deadline is None or time.monotonic() < deadline):
            time.sleep(0.005)

    def close(self, error: Optional[BaseException] = None) -> None:
        """Ends all requests, whose streams receive the error, and frees the engine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._lock:
            streams = list(self._streams.values())
            self._streams.clear()
            self._numbers.clear()
            self._requests = None  # it holds a reference to the session
        self.session.close()
        for stream in streams:
            self._call(stream.loop, [(stream, error or EngineError("the engine was closed"))])

    def _follow(self) -> None:
        requests = self._requests
        while not self._closed and requests is not None:
            if requests.n_open == 0:
                self._wake.wait()
                self._wake.clear()
                continue
            news = requests.poll(_POLL_SECONDS)
            by_loop: Dict[asyncio.AbstractEventLoop, List[Tuple[Stream, News]]] = {}
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
    def _call(loop: asyncio.AbstractEventLoop, batch: List[Tuple[Stream, Any]]) -> None:
        def put() -> None:
            for stream, one in batch:
                stream.queue.put_nowait(one)

        try:
            loop.call_soon_threadsafe(put)
        except RuntimeError:  # the loop is closed: there is no reader
            pass
