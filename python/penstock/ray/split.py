"""Prefill and decode on different machines: two groups of replicas that share a store of blocks, behind OpenAI's routes.

    from ray import serve
    from penstock.ray.split import SplitConfig, build_app

    serve.run(build_app(SplitConfig(model="org/name:Q4_K_M", kv_store="redis://cache.example:6379",
                                    prefill={"max_replicas": 4, "num_cpus": 16}, decode={"max_replicas": 2, "num_cpus": 8})))

A request whose prompt has much that is new is first given to a prefill replica, which computes the prompt and writes its blocks to
the store while it does so; then to a decode replica, which reads them and writes the reply. All other requests go to decode replicas
at once. A prefill replica that dies, is late or fails costs its time only: the decode replica computes what it does not find.
"""
from __future__ import annotations

import asyncio
import collections
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Dict, OrderedDict, Union

from ray import serve

from .prefix_router import MOST_PIECES, PIECE, chain
from .serve import MOST_PREFIX, Ingress, LLMConfig, prompt_text, replicas_of

log = logging.getLogger("ray.serve")

MOST_TEXT = 1 << 20  # maximum characters of a prompt that are compared with earlier ones
FIRST_REST, LONGEST_REST = 5.0, 60.0  # seconds without prefill replicas after one was late, and their limit as it is late again
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

    async def before(self, method: str, target: str, headers: Dict[str, str], body: bytes) -> None:
        """Called before a request is passed to a replica."""
        if method != "POST" or target.split("?")[0] not in _GENERATING:
            return
        text = prompt_text(body)
        if self._known.new_characters(text) >= self._config.least_new and time.monotonic() >= self._rests_until:
            outcome = await self._compute(target, headers, body, text)
            self._counts[outcome] += 1
        self._known.note(text)  # the decode replica stores what it computes, too

    async def _compute(self, target: str, headers: Dict[str, str], body: bytes, text: str) -> str:
        """Has a prefill replica compute a prompt. Whatever becomes of it, the request goes on."""
        pieces = self._prefill.prefill.remote(target, headers, body, prefix=text[:MOST_PREFIX])
        begun = time.monotonic()
        try:
            await asyncio.wait_for(pieces.__anext__(), self._config.accept_seconds)
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
    except (ValueError, AttributeError, TypeError):
        return False


def build_app(config: Union[SplitConfig, Dict[str, Any]]) -> serve.Application:
    """Returns a Serve application with both groups of replicas and the ingress. For serve.run(), or by its import path for a Serve
    config file, whose `args` are the fields of SplitConfig."""
    if isinstance(config, dict):
        config = SplitConfig(**config)
    if not config.kv_store:
        raise ValueError("kv_store: expected the store that prefill and decode replicas share, as redis://HOST or a folder")
    ingress = serve.deployment(SplitIngress).options(name=config.name, max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
    return ingress.bind(replicas_of(config.group("prefill")), replicas_of(config.group("decode")), config)
