"""OpenAI's routes on a Ray cluster: replicas of a model behind Ray Serve.

    from ray import serve
    from penstock.ray.serve import LLMConfig, build_app

    serve.run(build_app(LLMConfig(model="org/name:Q4_K_M", min_replicas=1, max_replicas=4)))

Every replica runs its own Penstock server, so that all routes are available: chats, completions, responses, embeddings, tools,
streams. Requests are routed to a replica that has their prefix in its cache (prefix_router.py). If a replica dies before any of a
reply was sent, the request is retried on another one; later it ends with an error.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, AsyncGenerator, AsyncIterator, Dict, List, Mapping, Optional, Tuple, Union

import aiohttp
import yarl
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .._openai_server import openai_server
from .prefix_router import PrefixRouter

log = logging.getLogger("ray.serve")

MOST_BODY = 64 << 20  # maximum bytes of a request's body
MOST_PREFIX = 16384  # maximum characters of a prefix for routing
MOST_PARSED = 1 << 20  # maximum bytes of a body that is parsed for its prompt; of others the text behind the prompt's name is taken
_PROMPT = re.compile(rb'"(?:messages|prompt|input)"\s*:\s*')
_NO_TARGET = re.compile(rb"[^!-~]|#")  # bytes that a request's target may not have
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade", "trailer"}
Head = Tuple[int, Dict[str, str]]


@dataclass
class LLMConfig:
    """A model and the settings of its replicas.

    Attributes:
        model: as LLM takes it; every node must be able to find it.
        name: name of the Serve deployment.
        options: flags of `penstock serve`, with underscores: {"max_num_seqs": 32, "served_model_name": "mine"}.
        num_replicas: fixed number of replicas; None: autoscaling.
        min_replicas, max_replicas, target_ongoing_requests: autoscaling by the number of running and waiting requests per replica.
        autoscaling: further fields of Ray Serve's AutoscalingConfig, as {"upscale_delay_s": 10, "downscale_delay_s": 300}.
        num_cpus: number of CPUs that Ray reserves for a replica, and of its threads.
        max_ongoing_requests: maximum number of requests in a replica; others wait in Serve.
        drain_seconds: maximum seconds in which a removed replica finishes its requests.
        most_ahead: argument of PrefixRouter.
        max_attempts: maximum number of replicas that are tried for a request, one after the other.
    """

    model: str = ""
    name: str = "penstock"
    options: Dict[str, Any] = field(default_factory=dict)
    num_replicas: Optional[int] = None
    min_replicas: int = 1
    max_replicas: int = 1
    target_ongoing_requests: float = 16.0
    autoscaling: Dict[str, Any] = field(default_factory=dict)
    num_cpus: float = 1.0
    max_ongoing_requests: int = 256
    drain_seconds: float = 30.0
    most_ahead: int = 16
    max_attempts: int = 3
    ray_actor_options: Dict[str, Any] = field(default_factory=dict)


class Replica:
    """A Ray Serve actor with one server process, to which it passes requests."""

    def __init__(self, config: LLMConfig) -> None:
        self._stack = contextlib.ExitStack()
        options = {"threads": max(1, int(config.num_cpus)), **config.options}
        self._server = self._stack.enter_context(
            openai_server(config.model, drain_seconds=config.drain_seconds, **options))
        self._base = self._server.base_url[:-len("/v1")]
        self._closing = False
        threading.Thread(target=self._end_with_server, daemon=True).start()
        self._session: Optional[aiohttp.ClientSession] = None

    def _end_with_server(self) -> None:
        """Ends the replica with its server: without it all requests would fail at once and the replica would seem the least
        busy."""
        self._server.process.wait()
        if not self._closing:
            log.error("the server has ended with exit code %s, and its replica with it", self._server.process.returncode)
            os._exit(1)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                                                  connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        return self._session

    def _url(self, target: str) -> yarl.URL:
        return yarl.URL(self._base + target, encoded=True)

    async def request(self, method: str, target: str, headers: Dict[str, str], body: bytes, prefix: str = "",
                      ) -> AsyncGenerator[Union[Head, bytes], None]:
        """Yields the reply: status and headers, then pieces of the body as they come."""
        async with self._client().request(method, self._url(target), headers=headers, data=body or None,
                                          allow_redirects=False) as reply:
            yield reply.status, {name: value for name, value in reply.headers.items() if name.lower() not in _HOP_BY_HOP}
            async for piece in reply.content.iter_any():
                yield piece

    async def prefill(self, target: str, headers: Dict[str, str], body: bytes, prefix: str = "",
                      ) -> AsyncGenerator[Tuple[int, bytes], None]:
        """For a server of role prefill: yields (0, b"") when it has the request, then the reply's status and body."""
        yield 0, b""
        async with self._client().post(self._url(target), headers=headers, data=body, allow_redirects=False) as reply:
            yield reply.status, await reply.read()

    async def pid(self) -> int:
        """Returns the process id of the server."""
        return self._server.process.pid

    async def check_health(self) -> None:
        """Called periodically by Serve; an exception makes it start another replica."""
        async with self._client().get(self._base + "/live", timeout=aiohttp.ClientTimeout(total=5)) as reply:
            if reply.status != 200:
                raise RuntimeError(f"/live: {reply.status}")

    def __del__(self) -> None:
        self._closing = True
        self._stack.close()


def prompt_text(body: bytes) -> str:
    """Returns a request's prompt as text that begins like those of requests with the same beginning; "": not known. Takes little time
    and memory for any body: all requests share the event loop."""
    if len(body) > MOST_PARSED:
        begin = _PROMPT.search(body)
        return body[begin.end():begin.end() + MOST_PARSED].decode(errors="replace") if begin else ""
    try:
        request = json.loads(body)
        if not isinstance(request, dict):
            return ""
        for name in ("messages", "prompt", "input"):
            found = request.get(name)
            if isinstance(found, str):
                return found
            if found:
                return json.dumps(found, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply: the server says so
        pass
    return ""


def prompt_beginning(body: bytes) -> str:
    """Returns the beginning of a request's prompt, for routing; "": not known."""
    return prompt_text(body)[:MOST_PREFIX]


def error_body(message: str, code: int) -> bytes:
    """Returns an error in OpenAI's format."""
    return json.dumps({"error": {"message": message, "type": "server_error", "param": None, "code": code}}).encode()


def target_of(scope: Mapping[str, Any]) -> str:
    """Returns the path below the application's prefix, and the query, as the client wrote them: %2F in a name is no slash, %3F begins
    no query. What no target may have is percent-encoded."""
    path = scope.get("raw_path") or urllib.parse.quote(scope["path"]).encode()
    prefix = urllib.parse.quote(scope.get("root_path", "")).encode().rstrip(b"/")
    if prefix and path.startswith(prefix):
        path = path[len(prefix):]
    if not path.startswith(b"/"):
        path = b"/" + path
    query = scope.get("query_string", b"")
    whole = path.replace(b"?", b"%3F") + (b"?" + query if query else b"")
    return _NO_TARGET.sub(lambda found: b"%%%02X" % found[0][0], whole).decode()


class Ingress:
    """Passes requests to replicas and returns their replies; tries another replica when one has died."""

    def __init__(self, replicas: Any, max_attempts: int) -> None:
        self._replicas = replicas.options(stream=True)
        self._max_attempts = max_attempts

    async def __call__(self, request: Request) -> Response:
        """Handles a request to any route."""
        body = await self._read(request)
        if body is None:
            return Response(error_body(f"the request has more than {MOST_BODY} bytes", 413), 413, media_type="application/json")
        target = target_of(request.scope)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        aside = await self.before(request.method, target, headers, body)
        beginning = prompt_beginning(body)
        failure = ""
        for _ in range(self._max_attempts):
            pieces = self._replicas.request.remote(request.method, target, headers, body, prefix=beginning)
            try:
                status, reply_headers = await pieces.__anext__()
                if reply_headers.get("Content-Type", "").startswith("text/event-stream"):
                    first = await pieces.__anext__()
                    return StreamingResponse(self._stream(first, pieces, aside), status, reply_headers)
                whole = b"".join([piece async for piece in pieces])
                return Response(whole, status, reply_headers)
            except asyncio.CancelledError:
                pieces.cancel()
                if aside is not None:
                    aside.cancel()
                raise
            except StopAsyncIteration:
                failure = "the reply was empty"
            except Exception as error:  # the replica or its server died before anything was sent: try another one
                failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                log.warning("a replica failed (%s); the request is given to another", failure)
                await asyncio.sleep(0.1)
        return Response(error_body(f"no replica could answer; the last failure: {failure}", 503), 503,
                        media_type="application/json")

    async def before(self, method: str, target: str, headers: Dict[str, str], body: bytes) -> Optional["asyncio.Task[None]"]:
        """Called before a request is passed to a replica; may change the headers. Returns what goes on beside the request, and is
        cancelled when the client leaves."""
        return None

    @staticmethod
    async def _read(request: Request) -> Optional[bytes]:
        parts: List[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                return None
            parts.append(part)
        return b"".join(parts)

    @staticmethod
    async def _stream(first: bytes, pieces: Any, aside: Optional["asyncio.Task[None]"] = None) -> AsyncIterator[bytes]:
        """Yields the pieces of a reply as they come; an error in OpenAI's format if the replica dies meanwhile."""
        try:
            yield first
            async for piece in pieces:
                yield piece
        except asyncio.CancelledError:
            pieces.cancel()
            if aside is not None:
                aside.cancel()
            raise
        except Exception as error:
            log.warning("a replica failed within a stream: %s", error)
            yield b"data: " + error_body("the replica that wrote this reply has ended; what was sent is incomplete", 502) + b"\n\n"


def replicas_of(config: LLMConfig) -> serve.Application:
    """Returns the bound deployment of a model's replicas."""
    scaling: Dict[str, Any] = {"num_replicas": config.num_replicas}
    if config.num_replicas is None:
        scaling = {"autoscaling_config": AutoscalingConfig(min_replicas=config.min_replicas, max_replicas=config.max_replicas,
                                                           target_ongoing_requests=config.target_ongoing_requests,
                                                           **config.autoscaling)}
    replica = serve.deployment(Replica).options(
        name=f"{config.name}-replica", max_ongoing_requests=config.max_ongoing_requests, health_check_period_s=2,
        health_check_timeout_s=10, graceful_shutdown_timeout_s=config.drain_seconds,
        ray_actor_options={"num_cpus": config.num_cpus, **config.ray_actor_options},
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter,
                                                  request_router_kwargs={"most_ahead": config.most_ahead}), **scaling)
    return replica.bind(config)


def build_app(config: Union[LLMConfig, Dict[str, Any]]) -> serve.Application:
    """Returns a Serve application with the model's replicas and the ingress. For serve.run(), or by its import path for a Serve
    config file, whose `args` are the fields of LLMConfig."""
    if isinstance(config, dict):
        config = LLMConfig(**config)
    ingress = serve.deployment(Ingress).options(name=config.name, max_ongoing_requests=10_000,
                                                ray_actor_options={"num_cpus": 0})
    return ingress.bind(replicas_of(config), config.max_attempts)
