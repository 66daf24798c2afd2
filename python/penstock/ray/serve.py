"""OpenAI's routes on a Ray cluster: replicas of a model behind Ray Serve.

    from ray import serve
    from penstock.ray.serve import LLMConfig, build_app

    serve.run(build_app(LLMConfig(model="org/name:Q4_K_M", min_replicas=1, max_replicas=4)))

Every replica has a Penstock server of its own, so that all of its routes are there, as they are without Ray: chats, completions,
responses, embeddings, tools, streams. Requests go where their beginning is in a cache (prefix_router.py). A request whose replica
dies before any of its reply was sent is given to another; later it ends with an error that says so.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from dataclasses import dataclass, field
from typing import Any, AsyncGenerator, AsyncIterator, Dict, List, Optional, Tuple, Union

import aiohttp
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .._openai_server import openai_server
from .prefix_router import PrefixRouter

log = logging.getLogger("ray.serve")

MOST_BODY = 64 << 20  # bytes of a request
MOST_PREFIX = 16384  # characters that routing looks at
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade", "trailer"}
Head = Tuple[int, Dict[str, str]]


@dataclass
class LLMConfig:
    """A model and how many of it there are.

    Attributes:
        model: as LLM takes it; every node must be able to find it.
        name: of the Serve deployment.
        options: of `penstock serve`, with underscores: {"max_num_seqs": 32, "served_model_name": "mine"}.
        num_replicas: a fixed number; None is as many as autoscaling wants.
        min_replicas, max_replicas, target_ongoing_requests: of autoscaling, by requests that run or wait per replica.
        num_cpus: of a replica: what Ray reserves, and its threads.
        max_ongoing_requests: that a replica takes; more wait in Serve.
        drain_seconds: how long a replica that is taken away finishes what it has.
        most_ahead: of routing (PrefixRouter).
        max_attempts: replicas that a request is given to, one after the other, before it fails.
    """

    model: str = ""
    name: str = "penstock"
    options: Dict[str, Any] = field(default_factory=dict)
    num_replicas: Optional[int] = None
    min_replicas: int = 1
    max_replicas: int = 1
    target_ongoing_requests: float = 16.0
    num_cpus: float = 1.0
    max_ongoing_requests: int = 256
    drain_seconds: float = 30.0
    most_ahead: int = 16
    max_attempts: int = 3
    ray_actor_options: Dict[str, Any] = field(default_factory=dict)


class Replica:
    """One server and what it is asked. An actor of Ray Serve."""

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
        """Without its server a replica would fail every request, and, doing so at once, seem the least busy of all."""
        self._server.process.wait()
        if not self._closing:
            log.error("the server has ended with exit code %s, and its replica with it", self._server.process.returncode)
            os._exit(1)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                                                  connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        return self._session

    async def request(self, method: str, target: str, headers: Dict[str, str], body: bytes, prefix: str = "",
                      ) -> AsyncGenerator[Union[Head, bytes], None]:
        """The reply: its status and headers, then its body in pieces as they come."""
        async with self._client().request(method, self._base + target, headers=headers, data=body or None,
                                          allow_redirects=False) as reply:
            yield reply.status, {name: value for name, value in reply.headers.items() if name.lower() not in _HOP_BY_HOP}
            async for piece in reply.content.iter_any():
                yield piece

    async def pid(self) -> int:
        """Of the server."""
        return self._server.process.pid

    async def check_health(self) -> None:
        """Serve asks now and then; an exception makes it start another replica."""
        async with self._client().get(self._base + "/health", timeout=aiohttp.ClientTimeout(total=5)) as reply:
            if reply.status != 200:
                raise RuntimeError(f"/health: {reply.status}")

    def __del__(self) -> None:
        self._closing = True
        self._stack.close()


def prompt_beginning(body: bytes) -> str:
    """What a request's prompt begins with, for routing; "" where nothing is known."""
    try:
        request = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(request, dict):
        return ""
    for name in ("messages", "prompt", "input"):
        found = request.get(name)
        if isinstance(found, str):
            return found[:MOST_PREFIX]
        if found:
            return json.dumps(found, ensure_ascii=False)[:MOST_PREFIX]
    return ""


def error_body(message: str, code: int) -> bytes:
    """OpenAI's form of an error."""
    return json.dumps({"error": {"message": message, "type": "server_error", "param": None, "code": code}}).encode()


class Ingress:
    """Takes requests, finds a replica, passes its reply on. Another replica when the first is gone."""

    def __init__(self, replicas: Any, max_attempts: int) -> None:
        self._replicas = replicas.options(stream=True)
        self._max_attempts = max_attempts

    async def __call__(self, request: Request) -> Response:
        """Any route of the server."""
        body = await self._read(request)
        if body is None:
            return Response(error_body(f"the request has more than {MOST_BODY} bytes", 413), 413, media_type="application/json")
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        failure = ""
        for _ in range(self._max_attempts):
            pieces = self._replicas.request.remote(request.method, target, headers, body, prefix=prompt_beginning(body))
            try:
                status, reply_headers = await pieces.__anext__()
                if reply_headers.get("Content-Type", "").startswith("text/event-stream"):
                    first = await pieces.__anext__()
                    return StreamingResponse(self._stream(first, pieces), status, reply_headers)
                whole = b"".join([piece async for piece in pieces])
                return Response(whole, status, reply_headers)
            except asyncio.CancelledError:
                pieces.cancel()
                raise
            except StopAsyncIteration:
                failure = "the reply was empty"
            except Exception as error:  # the replica died, or its server did: nothing was sent, another may answer
                failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                log.warning("a replica failed (%s); the request is given to another", failure)
                await asyncio.sleep(0.1)
        return Response(error_body(f"no replica could answer; the last failure: {failure}", 503), 503,
                        media_type="application/json")

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
    async def _stream(first: bytes, pieces: Any) -> AsyncIterator[bytes]:
        """Pieces as they come; an error in OpenAI's form where the replica dies between them."""
        try:
            yield first
            async for piece in pieces:
                yield piece
        except asyncio.CancelledError:
            pieces.cancel()
            raise
        except Exception as error:
            log.warning("a replica failed within a stream: %s", error)
            yield b"data: " + error_body("the replica that wrote this reply has ended; what was sent is incomplete", 502) + b"\n\n"


def build_app(config: Union[LLMConfig, Dict[str, Any]]) -> serve.Application:
    """An application for serve.run(), or by its import path for a configuration file of Serve, whose `args` are LLMConfig's fields:
    replicas of the model, and what finds one for each request."""
    if isinstance(config, dict):
        config = LLMConfig(**config)
    scaling: Dict[str, Any] = {"num_replicas": config.num_replicas}
    if config.num_replicas is None:
        scaling = {"autoscaling_config": AutoscalingConfig(min_replicas=config.min_replicas, max_replicas=config.max_replicas,
                                                           target_ongoing_requests=config.target_ongoing_requests)}
    replica = serve.deployment(Replica).options(
        name=f"{config.name}-replica", max_ongoing_requests=config.max_ongoing_requests, health_check_period_s=2,
        health_check_timeout_s=10, graceful_shutdown_timeout_s=config.drain_seconds,
        ray_actor_options={"num_cpus": config.num_cpus, **config.ray_actor_options},
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter,
                                                  request_router_kwargs={"most_ahead": config.most_ahead}), **scaling)
    ingress = serve.deployment(Ingress).options(name=config.name, max_ongoing_requests=10_000,
                                                                    ray_actor_options={"num_cpus": 0})
    return ingress.bind(replica.bind(config), config.max_attempts)
