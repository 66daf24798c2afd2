"""Which replica gets a request: the one that has computed its beginning before, unless others have much less to do.

Ray Serve's own interface of request routers. A prompt is known by a chain of hashes of its pieces; each piece is remembered with
the replica that last got it.
"""
from __future__ import annotations

import collections
import zlib
from typing import Any, Counter, List, Optional, OrderedDict

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

PIECE = 256  # characters
MOST_PIECES = 200_000  # remembered at once: about 30 MB


def chain(text: str) -> List[int]:
    """For every whole piece of the text the hash of all up to it."""
    hashes, last = [], 0
    for start in range(0, len(text) - PIECE + 1, PIECE):
        last = zlib.crc32(text[start:start + PIECE].encode(errors="replace"), last) ^ (start << 32)
        hashes.append(last)
    return hashes


class PrefixRouter(FIFOMixin, RequestRouter):  # type: ignore[misc,unused-ignore]
    """Routes by the keyword argument `prefix` of a request: the beginning of its prompt as text.

    Args:
        most_ahead: how many requests more than the least busy replica one may have and still be chosen for its cache.
    """

    def initialize_state(self, most_ahead: int = 16, **_: Any) -> None:
        """Called by Serve with request_router_kwargs."""
        self._most_ahead = most_ahead
        self._owners: OrderedDict[int, ReplicaID] = collections.OrderedDict()
        self._running: Counter[ReplicaID] = collections.Counter()

    async def choose_replicas(self, candidate_replicas: List[RunningReplica],
                              pending_request: Optional[PendingRequest] = None) -> List[List[RunningReplica]]:
        """Ranks: who has the longest beginning, then the others, least busy first."""
        by_load = sorted(candidate_replicas, key=lambda replica: self._running[replica.replica_id])
        if not by_load or pending_request is None:
            return [[replica] for replica in by_load]
        least = self._running[by_load[0].replica_id]
        usable = {replica.replica_id: replica for replica in by_load
                  if self._running[replica.replica_id] <= least + self._most_ahead}
        best: Optional[RunningReplica] = None
        for piece in chain(self._prefix(pending_request)):
            owner = self._owners.get(piece)
            if owner is None:
                break
            best = usable.get(owner, best)
        if best is None:
            return [[replica] for replica in by_load]
        return [[best], *([replica] for replica in by_load if replica is not best)]

    @staticmethod
    def _prefix(request: PendingRequest) -> str:
        return str(request.kwargs.get("prefix", ""))

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remembers who has the prompt now."""
        self._running[replica_id] += 1
        for piece in chain(self._prefix(pending_request)):
            self._owners[piece] = replica_id
            self._owners.move_to_end(piece)
        while len(self._owners) > MOST_PIECES:
            self._owners.popitem(last=False)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """One less to do."""
        if self._running[replica_id] > 0:
            self._running[replica_id] -= 1

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """What it had is gone."""
        super().on_replica_actor_died(replica_id)
        del self._running[replica_id]
        for piece in [piece for piece, owner in self._owners.items() if owner == replica_id]:
            del self._owners[piece]
