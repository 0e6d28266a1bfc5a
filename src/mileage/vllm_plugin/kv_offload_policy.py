"""Eviction policies of ours for the host memory that vLLM offloads KV blocks to (CachePolicy)."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final

from mileage.policy.eviction.choose import EvictionConfig, make_eviction
from mileage.policy.eviction.policy import BlockUse

try:
    from vllm.v1.kv_offload.cpu.policies import base as _vllm
except ImportError:  # outside of vLLM: the policies can be tried, and nothing else needs them
    _vllm = None

__all__ = ["POLICIES", "LruKHeatCachePolicy", "ReturnAwareCachePolicy", "add_policies"]

_log = logging.getLogger("vllm.mileage")
_ID_BYTES: Final = 8
_GROUP_BYTES: Final = 4
_HEAP_SLACK: Final = 1024
_NEW: Final = float("inf")
_Base: Any = object if _vllm is None else _vllm.CachePolicy


class _Entry:
    __slots__ = ("chunk", "depth", "rank")

    def __init__(self, chunk: Any) -> None:
        self.chunk = chunk
        self.rank = _NEW
        """Of a chunk whose request has not ended; the others have the policy's."""
        self.depth = 0


class _OffloadPolicy(_Base):  # type: ignore[misc]
    """Ranks chunks by one of our eviction policies; the lowest rank goes first.

    vLLM tells of a request when it has ended: that is its use of the cache, head to tail. What was
    stored for one that still runs goes last of all, the oldest of it first. Of equals the deepest
    goes first: without its beginning a prompt finds nothing.
    """

    policy = "return_aware"

    def __init__(self, cache_capacity: int) -> None:
        if _vllm is not None:
            super().__init__(cache_capacity)
        self.cache_capacity = cache_capacity
        self.clear()

    def get(self, key: bytes) -> Any:
        """The chunk; None where it is not stored."""
        entry = self._entries.get(key)
        return None if entry is None else entry.chunk

    def insert(self, key: bytes, chunk: Any) -> None:
        """Store a chunk."""
        self._entries[key] = entry = _Entry(chunk)
        if chunk.ref_cnt == 0:
            self._push(key, entry)

    def remove(self, key: bytes) -> None:
        """Its store has failed."""
        if self._entries.pop(key, None) is not None:
            self._ranking.evicted(_block(key))

    def touch(self, keys: Iterable[bytes], req_context: Any) -> None:
        """A running request has looked at these; they are counted when it ends."""

    def on_store_miss(self, keys: Iterable[bytes], req_context: Any) -> None:
        """These are to be stored; they are counted when their request ends."""

    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[bytes]],
        insertion_only_keys: set[bytes],
        reused_keys: set[bytes],
        req_context: Any,
    ) -> None:
        """One use of all chunks of the request."""
        keys = _ordered(key_groups, req_context)
        if not keys:
            return
        chain = [_block(key) for key in keys]
        self._ranking.use(BlockUse(chain, len(chain)), self._now_s())
        for depth, (key, block) in enumerate(zip(keys, chain, strict=True)):
            entry = self._entries.get(key)
            if entry is None:
                self._ranking.evicted(block)
                continue
            entry.depth, entry.rank = depth, self._ranking.rank(block)
            if entry.chunk.ref_cnt == 0:
                self._push(key, entry)

    def evict(self, n: int, protected: set[bytes]) -> list[tuple[bytes, Any]] | None:
        """Exactly `n` chunks that nobody reads, none of them protected; None, and no change, where
        there are not so many."""
        if n == 0:
            return []
        self._age()
        taken: dict[bytes, tuple[float, int, int, bytes]] = {}
        kept = []
        while self._heap and len(taken) < n:
            item = heapq.heappop(self._heap)
            key = item[3]
            entry = self._entries.get(key)
            if entry is None or entry.rank != item[0] or key in taken or entry.chunk.ref_cnt:
                continue  # it has another place by now, or none
            if key in protected:
                kept.append(item)
            else:
                taken[key] = item
        enough = len(taken) == n
        for item in kept if enough else (*kept, *taken.values()):
            heapq.heappush(self._heap, item)
        if not enough:
            return None
        found = []
        for key in taken:
            found.append((key, self._entries.pop(key).chunk))
            self._ranking.evicted(_block(key))
        return found

    def clear(self) -> None:
        """Nothing is stored, and all that was learned is forgotten."""
        config = EvictionConfig(policy=self.policy)
        self._ranking = make_eviction(config, blocks_max=self.cache_capacity)
        self._entries: dict[bytes, _Entry] = {}
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._order = count()
        self._epoch: int | None = None

    def mark_evictable(self, key: bytes) -> None:
        """Nobody reads it any more, or its store is complete."""
        entry = self._entries.get(key)
        if entry is not None:
            self._push(key, entry)

    def mark_non_evictable(self, key: bytes) -> None:
        """Somebody reads it: `evict` sees that by its count."""

    def _now_s(self) -> float:
        return time.monotonic()

    def _push(self, key: bytes, entry: _Entry) -> None:
        if len(self._heap) > 2 * len(self._entries) + _HEAP_SLACK:
            self._fill()
        heapq.heappush(self._heap, (entry.rank, -entry.depth, next(self._order), key))

    def _age(self) -> None:
        """Rank all anew where their order has changed with time."""
        epoch = self._ranking.epoch(self._now_s())
        if epoch != self._epoch:
            if self._epoch is not None:
                for key, entry in self._entries.items():
                    if entry.rank != _NEW:
                        entry.rank = self._ranking.rank(_block(key))
                self._fill()
            self._epoch = epoch

    def _fill(self) -> None:
        """The heap without what is out of date."""
        self._heap = [
            (entry.rank, -entry.depth, next(self._order), key)
            for key, entry in self._entries.items()
            if entry.chunk.ref_cnt == 0
        ]
        heapq.heapify(self._heap)


class ReturnAwareCachePolicy(_OffloadPolicy):
    """`return_aware`: keeps what comes back soon, though newer blocks have come since."""

    policy = "return_aware"


class LruKHeatCachePolicy(_OffloadPolicy):
    """`lru_k_heat`: ranks a block by how often it came back lately and how much it was used."""

    policy = "lru_k_heat"


POLICIES: Final = {
    "return_aware": ReturnAwareCachePolicy.__name__,
    "lru_k_heat": LruKHeatCachePolicy.__name__,
}
"""By the name that vLLM's `eviction_policy` takes: the class here."""


def add_policies(factory: Any) -> None:
    """Make them known to vLLM's factory, once. One whose name it has already is left alone."""
    for name, cls in POLICIES.items():
        try:
            factory.register_cache_policy(name, __name__, cls)
        except ValueError:
            _log.debug("vLLM has an eviction policy %s already", name)


def _block(key: bytes) -> int:
    """The policies' name of a key: a hash, and the number of its group at the end."""
    return int.from_bytes(key[:_ID_BYTES], "big") ^ int.from_bytes(key[-_GROUP_BYTES:], "big")


def _ordered(key_groups: Sequence[Sequence[bytes]], req_context: Any) -> list[bytes]:
    """All keys of a request, head to tail, each once."""
    if _vllm is not None:
        keys: Iterable[bytes] = _vllm.order_request_keys(key_groups, req_context)
    else:
        keys = (key for group in key_groups for key in group)
    return list(dict.fromkeys(keys))
