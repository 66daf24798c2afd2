"""Routes a request to the replica that has its prefix in its cache, unless other replicas are much less busy.

Implements Ray Serve's interface of request routers. A prompt is identified by a chain of hashes of its pieces; the last replica of
each piece is stored.
"""
from __future__ import annotations

import collections
import time
import zlib
from typing import Any, Counter, List, Optional, OrderedDict, Tuple

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

PIECE = 256  # characters
MOST_PIECES = 200_000  # maximum number of stored pieces: about 30 MB
LOST_AFTER = 3600.0  # seconds after which a request without events is no longer counted


def chain(text: str) -> List[int]:
    """Returns for every whole piece of the text the hash of the text up to its end."""
    hashes, last = [], 0
    for start in range(0, len(text) - PIECE + 1, PIECE):
        last = zlib.crc32(text[start:start + PIECE].encode(errors="replace"), last) ^ (start << 32)
        hashes.append(last)
    return hashes


class PrefixRouter(RequestRouter):  # type: ignore[misc,unused-ignore]
    """Routes by the keyword argument `prefix` of a request: the beginning of its prompt as text.

    Args:
        most_ahead: maximum number of requests that a replica chosen for its cache may have above the least busy one.
    """

    def initialize_state(self, most_ahead: int = 16, **_: Any) -> None:
        """Called by Serve with request_router_kwargs."""
        self._most_ahead = most_ahead
        self._owners: OrderedDict[int, ReplicaID] = collections.OrderedDict()
        # Requests by id from the routing decision on: many are routed before the first is known to have arrived.
        self._given: OrderedDict[str, Tuple[ReplicaID, float]] = collections.OrderedDict()
        self._busy: Counter[ReplicaID] = collections.Counter()

    async def choose_replicas(self, candidate_replicas: List[RunningReplica],
                              pending_request: Optional[PendingRequest] = None) -> List[List[RunningReplica]]:
        """Returns the replicas in order of preference: the one with the longest cached prefix, then the others, least busy
        first."""
        request = pending_request.metadata.internal_request_id if pending_request is not None else ""
        self._take_back(request)
        by_load = sorted(candidate_replicas, key=lambda replica: self._busy[replica.replica_id])
        if not by_load or pending_request is None:
            return [[replica] for replica in by_load]
        least = self._busy[by_load[0].replica_id]
        usable = {replica.replica_id: replica for replica in by_load
                  if self._busy[replica.replica_id] <= least + self._most_ahead}
        best = by_load[0]
        for piece in chain(self._prefix(pending_request)):
            owner = self._owners.get(piece)
            if owner is None:
                break
            best = usable.get(owner, best)
        self._forget_lost()
        self._give(request, best.replica_id, pending_request)
        return [[best], *([replica] for replica in by_load if replica is not best)]

    @staticmethod
    def _prefix(request: PendingRequest) -> str:
        return str(request.kwargs.get("prefix", ""))

    def _give(self, request: str, replica_id: ReplicaID, pending: PendingRequest) -> None:
        self._given[request] = replica_id, time.monotonic()
        self._busy[replica_id] += 1
        for piece in chain(self._prefix(pending)):
            self._owners[piece] = replica_id
            self._owners.move_to_end(piece)
        while len(self._owners) > MOST_PIECES:
            self._owners.popitem(last=False)

    def _take_back(self, request: str) -> None:
        found = self._given.pop(request, None)
        if found is not None:
            self._busy[found[0]] -= 1

    def _forget_lost(self) -> None:
        """Removes requests that were cancelled between routing and sending, for which Serve calls no method."""
        while self._given:
            request, (_, since) = next(iter(self._given.items()))
            if time.monotonic() - since < LOST_AFTER:
                return
            self._take_back(request)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Records the replica that received the request, which may differ from the first choice."""
        request = pending_request.metadata.internal_request_id
        if self._given.get(request, (None, 0.0))[0] == replica_id:
            return
        self._take_back(request)
        self._give(request, replica_id, pending_request)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Removes the request from its replica's count, unless another replica was chosen after a refusal."""
        if self._given.get(internal_request_id, (None, 0.0))[0] == replica_id:
            self._take_back(internal_request_id)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Removes the replica's requests and prefixes."""
        super().on_replica_actor_died(replica_id)
        for request in [request for request, (owner, _) in self._given.items() if owner == replica_id]:
            del self._given[request]
        del self._busy[replica_id]
        for piece in [piece for piece, owner in self._owners.items() if owner == replica_id]:
            del self._owners[piece]
