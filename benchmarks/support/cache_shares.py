"""Hits of eviction policies in percent of the optimum's, over sizes of the cache."""

from __future__ import annotations

from collections.abc import Sequence

from mileage.policy.eviction.choose import EvictionConfig, make_eviction
from mileage.sim.cache_optimum import CacheOptimum
from mileage.sim.cache_replay import replay_cache
from mileage.sim.cache_trace import CacheTrace

__all__ = ["SIZES", "Shares", "share", "shares"]

SIZES = (1, 2, 5, 10, 20, 50)
"""Of the cache, in percent of the trace's different blocks."""

Shares = dict[str, dict[int, float]]
"""By policy and size: hits in percent of the optimum's."""


def shares(trace: CacheTrace, policies: Sequence[str]) -> Shares:
    """Every policy at every size of at least one block at which anything can be hit."""
    optimum = CacheOptimum(trace)
    found: Shares = {policy: {} for policy in policies}
    for percent in SIZES:
        best = optimum.hits(_blocks(trace, percent))
        if not best:
            continue
        for policy in policies:
            found[policy][percent] = share(trace, policy, percent, best)
    return found


def share(trace: CacheTrace, policy: str, percent: int, best: int) -> float:
    """Hits of one policy at one size, in percent of so many."""
    blocks_max = _blocks(trace, percent)
    ranks = make_eviction(EvictionConfig(policy=policy), blocks_max=blocks_max)
    return 100 * replay_cache(trace, ranks, blocks_max=blocks_max) / best


def _blocks(trace: CacheTrace, percent: int) -> int:
    return trace.blocks * percent // 100
