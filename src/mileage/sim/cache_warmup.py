"""What warming a cache up is worth: a restart in the middle of a trace, cold and warm."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.policy.eviction.policy import Block, EvictionPolicy
from mileage.policy.eviction.prefix_cache import PrefixCache
from mileage.policy.eviction.warmup import (
    CachedBlock,
    WarmupChunk,
    WarmupConfig,
    WarmupQueue,
    plan_warmup,
)
from mileage.sim.cache_trace import CacheTrace

__all__ = ["Restart", "WarmupEffect", "warmup_effect"]


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the cache is lost, and how fast it can be loaded. Raises ConfigError."""

    at_s: float
    """The cache is lost just before the first arrival from then on."""
    window_s: float = 120.0
    """Hits are counted for so long."""
    block_bytes: int
    """Memory of a block of the trace."""
    bytes_per_s: float | None = None
    """Of all chunks together while serving; None: everything is loaded before serving goes on."""
    ready_ratio: float = 0.0
    """The share of what is loaded that is there before serving goes on, whatever the rate."""

    def __post_init__(self) -> None:
        require_at_least("restart.at_s", self.at_s, 0.0)
        require_positive("restart.window_s", self.window_s)
        require_range("restart.block_bytes", self.block_bytes, 1, 1 << 50)
        if self.bytes_per_s is not None:
            require_positive("restart.bytes_per_s", self.bytes_per_s, "bytes per second")
        require_range("restart.ready_ratio", self.ready_ratio, 0.0, 1.0)


class WarmupEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The window after a restart, in counts, so that several can be added up."""

    references: int
    cold_hits: int
    warm_hits: int
    blocks_lost: int
    """Blocks that were stored before."""
    blocks_loaded: int
    """Of those planned, what was loaded by the end of the window and had room."""
    loaded_s: float | None
    """After the restart; None where that was not all within the window."""
    loaded_bytes: int
    """Read by the end of the window, whether it was of use or not."""
    swing_bytes: int
    """The most that was being loaded and could not be used yet."""
    growth_bytes: int
    """The most by which what is stored grew at once."""


def warmup_effect(
    trace: CacheTrace,
    make_policy: Callable[[], EvictionPolicy],
    *,
    blocks_max: int,
    restart: Restart,
    config: WarmupConfig,
) -> WarmupEffect:
    """Serve the trace up to the restart, then the window twice: with an empty cache and a warm one.

    What the policy has learned survives in both: it is small, and saved with the list of blocks.
    """
    first = bisect_left(trace.arrived_s, restart.at_s)
    end = bisect_left(trace.arrived_s, restart.at_s + restart.window_s)
    cold = _before(trace, make_policy(), first, blocks_max)[0]
    for block in list(cold):
        cold.policy.evicted(block)
    cold = PrefixCache(cold.policy, blocks_max=blocks_max)
    window = range(first, end)
    cold_hits = sum(cold.serve(trace.uses[i], trace.arrived_s[i]) for i in window)
    warm, used = _before(trace, make_policy(), first, blocks_max)
    lost = [
        CachedBlock(b, warm.parent(b), warm.policy.rank(b), used[b], restart.block_bytes)
        for b in warm
    ]
    plan = plan_warmup(lost, config)
    for known in lost:
        warm.policy.evicted(known.block)
    warm = PrefixCache(warm.policy, blocks_max=blocks_max)
    loading = _Loading(plan, {b.block: b.parent for b in lost}, warm, restart, config)
    warm_hits = 0
    for i in window:
        loading.advance(trace.arrived_s[i])
        warm_hits += warm.serve(trace.uses[i], trace.arrived_s[i])
    loading.advance(restart.at_s + restart.window_s)
    return WarmupEffect(
        references=sum(len(trace.uses[i].chain) for i in window),
        cold_hits=cold_hits,
        warm_hits=warm_hits,
        blocks_lost=len(lost),
        blocks_loaded=loading.blocks_loaded,
        loaded_s=loading.loaded_s,
        loaded_bytes=loading.loaded_bytes,
        swing_bytes=loading.queue.staged_bytes_max,
        growth_bytes=loading.growth_bytes,
    )


def _before(
    trace: CacheTrace, policy: EvictionPolicy, end: int, blocks_max: int
) -> tuple[PrefixCache, dict[Block, float]]:
    """The cache after the first `end` requests, and when each block was used last."""
    cache = PrefixCache(policy, blocks_max=blocks_max)
    used: dict[Block, float] = {}
    for use, now_s in zip(trace.uses[:end], trace.arrived_s[:end], strict=True):
        cache.serve(use, now_s)
        used.update(dict.fromkeys(use.chain, now_s))
    return cache, used


class _Loading:
    """Loads chunks in virtual time: each of `concurrency` streams has its share of the rate."""

    def __init__(
        self,
        plan: list[WarmupChunk],
        parents: dict[Block, Block | None],
        cache: PrefixCache,
        restart: Restart,
        config: WarmupConfig,
    ) -> None:
        self.queue = WarmupQueue(plan, config)
        self.blocks_loaded = self.loaded_bytes = self.growth_bytes = 0
        self.loaded_s: float | None = None
        self._parents, self._cache, self._restart = parents, cache, restart
        self._chunk_s_per_byte = 0.0
        if restart.bytes_per_s is not None:
            self._chunk_s_per_byte = config.concurrency / restart.bytes_per_s
        self._ready_bytes = restart.ready_ratio * sum(chunk.size_bytes for chunk in plan)
        self._begun_bytes = 0
        self._ends: list[tuple[float, int, int]] = []
        self._begin(restart.at_s)

    def advance(self, now_s: float) -> None:
        """Store what was loaded until now."""
        while self._ends and self._ends[0][0] <= now_s:
            end_s, number, size_bytes = heapq.heappop(self._ends)
            self.loaded_bytes += size_bytes
            stored = sum(map(self._store, self.queue.done(number)))
            self.blocks_loaded += stored
            self.growth_bytes = max(self.growth_bytes, stored * self._restart.block_bytes)
            self._begin(end_s)
            if self.queue.finished:
                self.loaded_s = end_s - self._restart.at_s

    def _store(self, block: Block) -> bool:
        parent = self._parents[block]
        stored = self._wanted(block) and (parent is None or parent in self._cache)
        if stored:
            self._cache.insert(block, parent)
        return stored

    def _wanted(self, block: Block) -> bool:
        # What is served meanwhile was computed anew, and is worth more than what is remembered.
        return block not in self._cache and len(self._cache) < self._cache.blocks_max

    def _begin(self, now_s: float) -> None:
        while (begun := self.queue.begin(self._wanted)) is not None:
            number, chunk = begun
            ready = self._begun_bytes < self._ready_bytes
            self._begun_bytes += chunk.size_bytes
            end_s = now_s if ready else now_s + chunk.size_bytes * self._chunk_s_per_byte
            heapq.heappush(self._ends, (end_s, number, chunk.size_bytes))
