"""Small statistics of the benchmarks: quantiles of samples, spread over rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "quantile", "spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of one figure over the rounds of a run."""

    median: float
    low: float
    high: float

    def rounded(self, digits: int) -> dict[str, float]:
        """As it stands in the JSON result."""
        return {
            "median": round(self.median, digits),
            "min": round(self.low, digits),
            "max": round(self.high, digits),
        }


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantile `q` (0..1) of ascending samples, linear between neighbours.

    Raises ValueError without samples: there is no figure to give.
    """
    if not ordered:
        raise ValueError("no samples")
    rank = q * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def spread(values: Iterable[float]) -> Spread:
    """Median, lowest and highest of `values`; raises ValueError without any."""
    ordered = sorted(values)
    return Spread(
        median=quantile(ordered, 0.5), low=quantile(ordered, 0), high=quantile(ordered, 1)
    )
