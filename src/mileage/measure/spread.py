"""Spread: mean and exact quantiles of a sample, of plain and of run-length data."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mileage.measure.quantiles import rank

__all__ = ["Spread", "spread", "spread_of_runs", "weighted_quantile"]


class Spread(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sample in eight figures; all but `count` are None where there are no data.

    The quantiles are exact, by the nearest rank (`mileage.measure.quantiles.rank`): each is a value
    that was observed. Look at `count` before a far quantile: the p999 of less than 1,000 values,
    and the p99 of less than 100, is the largest of them.
    """

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None


_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def spread(values: ArrayLike) -> Spread:
    """The spread of `values`, shape (n,), in any order. Raises ValueError for one that is NaN."""
    array = np.asarray(values, dtype=np.float64)
    return spread_of_runs(array, np.ones(len(array), dtype=np.int64))


def spread_of_runs(values: NDArray[np.float64], counts: NDArray[np.int64]) -> Spread:
    """The spread of data given as `values`, each `counts` times (0 or more), in any order.

    Raises ValueError for a value that is NaN and for a negative count.
    """
    if np.isnan(values).any() or (counts < 0).any():
        raise ValueError("values must be numbers and counts at least 0")
    total = int(counts.sum())
    if total == 0:
        return Spread()
    kept = counts > 0
    values, counts = values[kept], counts[kept]
    order = np.argsort(values)
    ordered, ends = values[order], np.cumsum(counts[order])
    at = {
        name: float(ordered[np.searchsorted(ends, rank(q, total))])
        for name, q in _QUANTILES.items()
    }
    # The mean of equal values is that value: a rounded sum could put it outside of them.
    mean = float(np.clip((values @ counts) / total, ordered[0], ordered[-1]))
    return Spread(count=total, mean=mean, max=float(ordered[-1]), **at)


def weighted_quantile(
    values: NDArray[np.float64], counts: NDArray[np.int64], q: float
) -> float | None:
    """Quantile `q` (0..1) of `values`, each `counts` times, by the nearest rank; or None."""
    total = int(counts.sum())
    if total == 0:
        return None
    order = np.argsort(values)
    ends = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(ends, rank(q, total))])
