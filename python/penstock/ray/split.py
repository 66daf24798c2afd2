"""Prefill and decode on different machines: two groups of replicas that share a store of blocks, behind OpenAI's routes.

    from ray import serve
    from penstock.ray.split import SplitConfig, build_app

    serve.run(build_app(SplitConfig(model="org/name:Q4_K_M", kv_store="redis://cache.example:6379",
                                    prefill={"max_replicas": 4, "num_cpus": 16}, decode={"max_replicas": 2, "num_cpus": 8})))

A request whose prompt has much that is new is given to a prefill replica, which computes the prompt and writes its blocks to the
store while it does so; and at the same time to a decode replica, which reads them as they come and writes the reply. All other
requests go to decode replicas alone. A prefill replica that dies, is late or fails costs its time only: the decode replica computes
what does not come.
"""
from __future__ import annotations

import asyncio
import collections
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, OrderedDict, Set, Union

from ray import serve

from .prefix_router import MOST_PIECES, PIECE, chain
from .serve import MOST_PREFIX, Ingress, LLMConfig, prompt_text, replicas_of

log = logging.getLogger("ray.serve")

MOST_TEXT = 1 << 20  # maximum characters of a prompt that are compared with earlier ones
FIRST_REST, LONGEST_REST = 5.0, 60.0  # seconds without prefill replicas after one was late, and their limit as it is late again
AT_ONCE = 0.05  # seconds in which a prefill replica refuses a request, or has a prompt that is short
_WAIT = "x-prefill-wait"
# Requests that generate text behind a prompt.
_GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/generate", "/api/generate", "/api/chat",
               "/completion")


@dataclass
class SplitConfig:
    """A model, and the settings of its prefill and decode replicas.

    Attributes:
        model: as LLM takes it; every node must be able to find it.
        kv_store: the store that all replicas share, as `penstock serve` takes it: a Redis, or a folder that all nodes have.
        name: name of the Serve deployment.
        options: flags of `penstock serve` of all replicas, with underscores.
        prefill, decode: fields of LLMConfig of the two groups: numbers of replicas, autoscaling, CPUs, further options.
        least_new: characters of a prompt that must be new for a prefill replica to be asked: fewer are computed where the reply is.
        accept_seconds: maximum seconds until a prefill replica has begun with a prompt.
        prefill_seconds: maximum seconds until it has computed and stored it.
        wait_seconds: how long a decode replica waits for the next blocks of a prompt, and by how much longer for all of them than it
            would compute, as far as it knows, before it computes the rest; at most 60. 0: it begins when the prompt is stored.
        max_attempts: maximum number of decode replicas that are tried for a request, one after the other.
    """

    model: str = ""
    kv_store: str = ""
    name: str = "penstock"
    options: Dict[str, Any] = field(default_factory=dict)
    prefill: Dict[str, Any] = field(default_factory=dict)
    decode: Dict[str, Any] = field(default_factory=dict)
    least_new: int = 4096
    accept_seconds: float = 2.0
    prefill_seconds: float = 60.0
    wait_seconds: float = 2.0
    max_attempts: int = 3

    def group(self, role: str) -> LLMConfig:
        """Returns the configuration of the replicas of a role."""
        own = dict(self.prefill if role == "prefill" else self.decode)
        options = {**self.options, **own.pop("options", {}), "role": role, "kv_store": self.kv_store}
        return LLMConfig(**{"model": self.model, "name": f"{self.name}-{role}", **own, "options": options})


class Known:
    """The beginnings of prompts whose blocks are in the store, as far as is known: those that were sent before."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[int, None] = collections.OrderedDict()

    def new_characters(self, text: str) -> int:
        """Returns how many characters of the text are behind what was noted."""
        n_known = 0
        for piece in chain(text[:MOST_TEXT]):
            if piece not in self._pieces:
                break
            n_known += PIECE
        return len(text) - n_known

    def note(self, text: str) -> None:
        """Notes a text whose blocks are in the store."""
        for piece in chain(text[:MOST_TEXT]):
            self._pieces[piece] = None
            self._pieces.move_to_end(piece)
        while len(self._pieces) > MOST_PIECES:
            self._pieces.popitem(last=False)


class SplitIngress(Ingress):
    """Has the prompts of requests computed by prefill replicas before it passes the requests to decode replicas."""

    def __init__(self, prefill: Any, decode: Any, config: SplitConfig) -> None:
        super().__init__(decode, config.max_attempts)
        self._prefill = prefill.options(stream=True)
        self._config = config
        self._known = Known()
        self._rests_until = 0.0
        self._rest = FIRST_REST
        self._counts: Dict[str, int] = collections.defaultdict(int)
        self._beside: Set["asyncio.Task[None]"] = set()

    async def before(self, method: str, target: str, headers: Dict[str, str], body: bytes) -> Optional["asyncio.Task[None]"]:
        """Called before a request is passed to a replica. Has a new prompt computed beside it."""
        for name in [name for name in headers if name.lower() == _WAIT]:
            del headers[name]
        if method != "POST" or target.split("?")[0] not in _GENERATING:
            return None
        text = prompt_text(body)
        beside = None
        if self._known.new_characters(text) >= self._config.least_new and time.monotonic() >= self._rests_until:
            accepted = asyncio.Event()
            beside = asyncio.create_task(self._compute(target, dict(headers), body, text, accepted))
            self._beside.add(beside)  # the event loop holds no task
            beside.add_done_callback(self._beside.discard)
            beside.add_done_callback(lambda _: accepted.set())
            try:
                await accepted.wait()
                await asyncio.wait({beside}, timeout=AT_ONCE if self._config.wait_seconds > 0 else None)
            except asyncio.CancelledError:
                beside.cancel()
                raise
            if not beside.done():
                headers[_WAIT] = str(self._config.wait_seconds)
        if beside is None:
            self._known.note(text)  # the decode replica stores what it computes, too
        return beside

    async def _compute(self, target: str, headers: Dict[str, str], body: bytes, text: str, accepted: asyncio.Event) -> None:
        """Has a prefill replica compute a prompt, and counts what becomes of it. Whatever that is, the request goes on."""
        outcome = await self._outcome(target, headers, body, text, accepted)
        self._counts[outcome] += 1
        self._known.note(text)

    async def _outcome(self, target: str, headers: Dict[str, str], body: bytes, text: str, accepted: asyncio.Event) -> str:
        pieces = self._prefill.prefill.remote(target, headers, body, prefix=text[:MOST_PREFIX])
        begun = time.monotonic()
        try:
            await asyncio.wait_for(pieces.__anext__(), self._config.accept_seconds)
            accepted.set()
            left = max(0.0, self._config.prefill_seconds - (time.monotonic() - begun))
            status, reply = await asyncio.wait_for(pieces.__anext__(), left)
        except asyncio.CancelledError:
            pieces.cancel()
            raise
        except asyncio.TimeoutError:
            pieces.cancel()
            self._rests_until = time.monotonic() + self._rest
            log.warning("no prefill replica was in time; prompts are computed by decode replicas for %.0f s", self._rest)
            self._rest = min(2 * self._rest, LONGEST_REST)
            return "late"
        except Exception as error:  # the replica or its server died
            log.warning("a prefill replica failed (%s); the prompt is computed by a decode replica", type(error).__name__)
            return "failed"
        self._rest = FIRST_REST
        if status == 200:
            return "stored" if _stored(reply) else "computed"
        return "refused"  # the decode replica says why, or computes

    async def counts(self) -> Dict[str, int]:
        """Returns how often prompts were "stored" by prefill replicas, "computed" but not stored in time, "refused", "failed", "late"."""
        return dict(self._counts)


def _stored(reply: bytes) -> bool:
    try:
        return int(json.loads(reply).get("stored_tokens", 0)) > 0
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False


def build_app(config: Union[SplitConfig, Dict[str, Any]]) -> serve.Application:
    """Returns a Serve application with both groups of replicas and the ingress. For serve.run(), or by its import path for a Serve
    config file, whose `args` are the fields of SplitConfig."""
    if isinstance(config, dict):
        config = SplitConfig(**config)
    if not 0 <= config.wait_seconds <= 60:
        raise ValueError(f"wait_seconds: expected 0 to 60, got {config.wait_seconds}")
    if not config.kv_store:
        raise ValueError("kv_store: expected the store that prefill and decode replicas share, as redis://HOST or a folder")
    ingress = serve.deployment(SplitIngress).options(name=config.name, max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
    return ingress.bind(replicas_of(config.group("prefill")), replicas_of(config.group("decode")), config)
