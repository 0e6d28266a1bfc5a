"""Replays a trace's prefix blocks against an eviction policy, and sets it against the optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from mileage.policy.eviction.policy import EvictionPolicy
from mileage.policy.eviction.prefix_cache import PrefixCache
from mileage.sim.cache_trace import CacheTrace

__all__ = ["CacheResult", "cache_result", "replay_cache"]

_TICK_REQUESTS: Final = 256


class CacheResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one policy did with a cache of one size. Ratios are of the trace's block references."""

    policy: str
    size: str
    """As it was asked for."""
    blocks_max: int
    hit_ratio: float
    optimum_hit_ratio: float
    share_of_optimum_ratio: float | None
    """None where even the optimum hits nothing."""


def replay_cache(
    trace: CacheTrace,
    policy: EvictionPolicy,
    *,
    blocks_max: int,
    tick: Callable[[int], None] | None = None,
) -> int:
    """Hits of a cache of so many blocks that begins empty. Each request is served at once.

    `tick` is told now and then how many requests are done.
    """
    cache = PrefixCache(policy, blocks_max=blocks_max)
    hits = 0
    for number, (use, now_s) in enumerate(zip(trace.uses, trace.arrived_s, strict=True)):
        hits += cache.serve(use, now_s)
        if tick is not None and number % _TICK_REQUESTS == 0:
            tick(number)
    return hits


def cache_result(
    trace: CacheTrace, policy: str, size: str, *, blocks_max: int, hits: int, optimum_hits: int
) -> CacheResult:
    """The figures out of the counts."""
    return CacheResult(
        policy=policy,
        size=size,
        blocks_max=blocks_max,
        hit_ratio=hits / trace.references,
        optimum_hit_ratio=optimum_hits / trace.references,
        share_of_optimum_ratio=hits / optimum_hits if optimum_hits else None,
    )
