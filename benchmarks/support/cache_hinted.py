"""What hints that a conversation goes on bring the cache, right and wrong ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.support.cache_shares import Shares, share
from mileage.sim.cache_hints import HintQuality, made_hints
from mileage.sim.cache_optimum import CacheOptimum
from mileage.sim.cache_trace import CacheTrace

__all__ = ["HINTED_SIZES", "hint_figures", "hinted_shares"]

HINTED_SIZES = (1, 2, 5, 10, 20)
_SEED = 1
_RIGHT = HintQuality(right_ratio=0.9)
_INVERTED = HintQuality(right_ratio=0.1, claimed_ratio=0.9)

_HONEST = {
    "60 % right": HintQuality(right_ratio=0.6),
    "70 % right": HintQuality(right_ratio=0.7),
    "80 % right": HintQuality(right_ratio=0.8),
    "80 % right, of half the requests": HintQuality(right_ratio=0.8, known_ratio=0.5),
    "90 % right": _RIGHT,
    "all right": HintQuality(right_ratio=1.0),
}
"""Callers that know how good their hints are."""
_WRONG = {
    "chance, claiming 90 %": (HintQuality(right_ratio=0.5, claimed_ratio=0.9),) * 2,
    "90 % wrong, claiming 90 % right": (_INVERTED, _INVERTED),
    "90 % right, then 90 % wrong": (_RIGHT, _INVERTED),
}
"""Callers that do not: in the first half of the requests, and in the second."""


def hinted_shares(
    trace: CacheTrace, unhinted: dict[int, float], sizes: Sequence[int] = HINTED_SIZES
) -> Shares:
    """Hits of `return_aware` in percent of the optimum's, by what hints are like."""
    arms = {name: (quality, quality) for name, quality in _HONEST.items()} | _WRONG
    optimum = CacheOptimum(trace)
    best = {percent: optimum.hits(trace.blocks * percent // 100) for percent in sizes}
    found: Shares = {"no hints": {percent: unhinted[percent] for percent in sizes}}
    middle = len(trace) // 2
    for name, (first, second) in arms.items():
        early = made_hints(trace, first, random.Random(_SEED))
        late = made_hints(trace, second, random.Random(_SEED))
        hinted = trace.with_hints(early[:middle] + late[middle:])
        found[name] = {
            percent: share(hinted, "return_aware", percent, best[percent]) for percent in sizes
        }
    return found


def hint_figures(found: Shares) -> dict[str, object]:
    """Gains and losses in points of the optimum, and the worst loss of all kinds and sizes."""
    none = found["no hints"]
    points = {
        name: {percent: round(by[percent] - none[percent], 2) for percent in by}
        for name, by in found.items()
        if name != "no hints"
    }
    return {
        "hint_points": points,
        "hints_cost_points": max(-min(by.values()) for by in points.values()),
    }
