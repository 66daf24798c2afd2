"""Servers that the plugin for `llm` asks: one that runs elsewhere, or one beside this process for each model, which ends with it."""
from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import os
import socket
import threading
import urllib.parse
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple

from ._openai_server import RunningServer, openai_server

_MOST_LINE = 64 << 20  # bytes of one event of a stream
_MOST_ERROR = 1 << 20  # bytes of a refusal that are read
_LOOKUP_SECONDS = 5.0


class ServerError(Exception):
    """A server refused a request, or did not answer."""


@dataclass(frozen=True)
class Server:
    """A server, and its name of the model."""

    url: str  # without "/v1"
    model: str

    def get(self, path: str, key: Optional[str], seconds: Optional[float] = _LOOKUP_SECONDS) -> Any:
        """Returns the JSON of a GET. Errors: ServerError."""
        with contextlib.closing(Exchange(self, "GET", path, None, key, seconds)) as exchange:
            return exchange.json()

    def post(self, path: str, body: Dict[str, Any], key: Optional[str]) -> Any:
        """Returns the JSON of a POST. Errors: ServerError."""
        with contextlib.closing(Exchange(self, "POST", path, body, key)) as exchange:
            return exchange.json()


class Exchange:
    """A request on its way and its reply, which is read once. close() may be called by any thread: the server then ends the request."""

    def __init__(self, server: Server, method: str, path: str, body: Optional[Dict[str, Any]], key: Optional[str],
                 seconds: Optional[float] = None) -> None:
        self._url = server.url
        self._closed = False
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        with contextlib.ExitStack() as failed:
            try:
                parts = urllib.parse.urlsplit(server.url)
                connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
                self._connection = connection(parts.hostname or "", parts.port, timeout=seconds)
                failed.callback(self._connection.close)
                self._connection.request(method, parts.path.rstrip("/") + path, None if body is None else json.dumps(body), headers)
                self._socket = self._connection.sock  # which the connection forgets when the reply is its last
            except (OSError, http.client.HTTPException) as error:
                raise ServerError(f"{self._url}: {error}") from error
            except ValueError:  # whose text may have the key
                raise ServerError(f"{self._url}: expected http://HOST:PORT, and a key of one line in Latin-1") from None
            failed.pop_all()

    def _reply(self) -> http.client.HTTPResponse:
        reply = self._connection.getresponse()
        if reply.status >= 400:
            raise ServerError(_message(reply.read(_MOST_ERROR), reply.status))
        return reply

    def json(self) -> Any:
        """Returns the body. Errors: ServerError."""
        try:
            return json.loads(self._reply().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerError(f"{self._url}: {error}") from error

    def events(self) -> Iterator[Dict[str, Any]]:
        """Returns the events of a stream as they come. Errors: ServerError."""
        try:
            reply = self._reply()
            while True:
                line = reply.readline(_MOST_LINE)
                if not line:
                    if self._closed:
                        return
                    raise ServerError(f"{self._url}: the stream ended early")
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise ServerError(_text_of(event["error"]))
                yield event
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self._closed:
                raise ServerError(f"{self._url}: {error}") from error

    def close(self) -> None:
        """Ends the request, if it still runs."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _message(body: bytes, status: int) -> str:
    try:
        return _text_of(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {status}: {body[:200].decode(errors='replace')}"


def _text_of(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


class Children:
    """The servers beside this process: one for each model, started when it is first asked, which end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Dict[str, Tuple[RunningServer, contextlib.ExitStack]] = {}
        self._process = os.getpid()
        atexit.register(self.close)

    def server_of(self, model: str, options: Dict[str, Any]) -> Server:
        """Returns the model's server; started if need be, anew if it has ended. Errors: EngineError."""
        with self._lock:
            key = json.dumps([model, options], sort_keys=True, default=str)
            if key in self._running and self._running[key][0].process.poll() is not None:
                self._running.pop(key)[1].close()
            if key not in self._running:
                stack = contextlib.ExitStack()
                self._running[key] = stack.enter_context(openai_server(model, **options)), stack
            running = self._running[key][0]
            return Server(running.base_url[:-len("/v1")], running.model)

    def close(self) -> None:
        """Ends all servers. In a child of a fork: nothing."""
        if os.getpid() == self._process:
            with self._lock, contextlib.ExitStack() as all_of_them:
                for _, stack in self._running.values():
                    all_of_them.push(stack)
                self._running.clear()
