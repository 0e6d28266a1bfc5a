"""Exact quantiles by one definition, the nearest rank, of plain and of run-length data."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["nearest_rank", "quantile", "quantile_of_runs", "rank"]


def rank(q: float, count: int) -> int:
    """The 1-based rank of quantile `q` (0..1) among `count` (1 or more) sorted values.

    It is the smallest k with k / count >= q (Hyndman and Fan's definition 1; numpy's
    'inverted_cdf'): the quantile is always a value that was really observed. Interpolation would
    invent gaps between tokens that never were: a stream that arrives in bursts has only zero gaps
    and long ones. 0.07 * 100 is 7.000000000000001 in binary floating point; the rank is 7 all the
    same. Raises ValueError for a `q` outside 0..1 or a `count` below 1.
    """
    if not (0.0 <= q <= 1.0 and count >= 1):
        raise ValueError(f"q must be in 0..1 and count at least 1, got {q!r} and {count!r}")
    return nearest_rank(q, count)


def nearest_rank(q: float, count: int) -> int:
    """`rank` without a check: plain arithmetic, for compiled code."""
    return min(count, max(1, math.ceil(q * count * (1.0 - 1e-12))))


def quantile(values: Iterable[float], q: float) -> float | None:
    """Quantile `q` (0..1) of `values` in any order; None without any. Raises as `rank` does."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[rank(q, len(ordered)) - 1]


def quantile_of_runs(runs: Iterable[tuple[float, int]], q: float) -> float | None:
    """`quantile` of data given as (value, how many times) pairs in any order; None without any.

    Raises ValueError for a negative count, and as `rank` does.
    """
    ordered = sorted(runs)
    if any(count < 0 for _, count in ordered):
        raise ValueError("a run's count must not be negative")
    total = sum(count for _, count in ordered)
    if total == 0:
        return None
    left = rank(q, total)
    for value, count in ordered:
        left -= count
        if left <= 0:
            return value
    raise AssertionError("a rank lies within the total")
