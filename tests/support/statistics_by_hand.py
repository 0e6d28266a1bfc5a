"""Tests of samples against distributions, without a library: Kolmogorov-Smirnov and chi-square."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = ["chi_square_z", "gamma_cdf", "ks_passes"]


def ks_passes(sample: Sequence[float], cdf: Callable[[float], float]) -> bool:
    """Whether the largest distance to the distribution is below its 1 % critical value."""
    ordered = sorted(sample)
    count = len(ordered)
    distance = 0.0
    for index, value in enumerate(ordered):
        level = cdf(value)
        distance = max(distance, level - index / count, (index + 1) / count - level)
    return distance < 1.628 / math.sqrt(count)


def chi_square_z(observed: Sequence[int], expected: Sequence[float]) -> float:
    """Pearson's chi-square as a standard normal value (Wilson and Hilferty's cube root)."""
    statistic = math.fsum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(observed) - 1
    spread = 2.0 / (9.0 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def gamma_cdf(shape: float, x: float) -> float:
    """The regularised lower incomplete gamma function, by its series."""
    if x <= 0:
        return 0.0
    if x > shape + 60:
        return 1.0
    term = total = 1.0 / shape
    place = shape
    while term > total * 1e-15:
        place += 1.0
        term *= x / place
        total += term
    return total * math.exp(-x + shape * math.log(x) - math.lgamma(shape))
