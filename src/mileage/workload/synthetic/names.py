"""names_of(): draws tenants, models and the like by their popularity."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from random import Random
from typing import TypeVar

from mileage.workload.synthetic.config import NamesConfig
from mileage.workload.synthetic.zipf import Zipf

__all__ = ["names_of", "weighted"]

T = TypeVar("T", bound=str)


def names_of(config: NamesConfig, stem: str) -> Callable[[Random], str]:
    """A function that draws a name: `stem`-1 is the most popular one."""
    if config.weights:
        return weighted(config.weights)
    zipf = Zipf(config.count, config.alpha)
    return lambda rng: f"{stem}-{zipf.draw(rng)}"


def weighted(weights: Mapping[T, float]) -> Callable[[Random], T]:
    """A function that draws a key as often as its weight says."""
    names = list(weights)
    bounds = list(accumulate(weights.values()))
    total, last = bounds[-1], len(names) - 1
    # On (0, total]: a name of weight 0 is never drawn.
    return lambda rng: names[min(last, bisect_left(bounds, (1.0 - rng.random()) * total))]
