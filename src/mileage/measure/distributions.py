"""Distributions that tests need: normal, Student's t and chi-square, to about 12 digits."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

__all__ = [
    "binomial_p",
    "chi_square_p",
    "normal_cdf",
    "normal_quantile",
    "t_critical",
    "t_p",
    "t_quantile",
]

_NORMAL = NormalDist()
_TINY = 1e-300
_DIGITS = 1e-15


def normal_cdf(z: float) -> float:
    """P(Z <= z) of a standard normal, exact in both tails."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """z with P(Z <= z) = p, for p inside 0..1."""
    return _NORMAL.inv_cdf(p)


def binomial_p(successes: int, trials: int, share: float) -> float:
    """Two-sided p-value of `successes` of `trials` with chance `share` (inside 0..1) each: twice
    the smaller tail, exact."""
    if trials == 0:
        return 1.0
    up, down = math.log(share), math.log1p(-share)
    whole = math.lgamma(trials + 1)

    def tail(counts: range) -> float:
        return math.fsum(
            math.exp(
                whole
                - math.lgamma(k + 1)
                - math.lgamma(trials - k + 1)
                + k * up
                + (trials - k) * down
            )
            for k in counts
        )

    smaller = min(tail(range(successes + 1)), tail(range(successes, trials + 1)))
    return min(1.0, 2.0 * smaller)


def t_p(t: float, df: float) -> float:
    """P(|T| >= |t|) of Student's t with `df` (above 0) degrees of freedom: a two-sided p-value."""
    if math.isinf(t):
        return 0.0
    return _beta_ratio(df / 2.0, 0.5, df / (df + t * t))


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """t with P(T <= t) = p, for p inside 0..1: by bisection of `t_p`."""
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    return t_critical(2.0 * (1.0 - p), df)


@lru_cache(maxsize=4096)
def t_critical(alpha: float, df: float) -> float:
    """t with P(|T| >= t) = alpha, for alpha above 0, at most 1."""
    low, high = 0.0, 1.0
    while t_p(high, df) > alpha:
        low, high = high, high * 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if t_p(middle, df) > alpha else (low, middle)
    return (low + high) / 2.0


def chi_square_p(x: float, df: float) -> float:
    """P(X >= x) of chi-square with `df` degrees of freedom (Numerical Recipes, 3rd ed., 6.2)."""
    if x <= 0.0:
        return 1.0
    a, half = df / 2.0, x / 2.0
    scale = math.exp(-half + a * math.log(half) - math.lgamma(a))
    if half < a + 1.0:
        term = total = 1.0 / a
        k = a
        while abs(term) > abs(total) * _DIGITS:
            k += 1.0
            term *= half / k
            total += term
        return max(0.0, 1.0 - total * scale)
    b = half + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / b
    h = d
    for i in range(1, 10_000):
        an = -i * (i - a)
        b += 2.0
        d = 1.0 / _away_from_zero(an * d + b)
        c = _away_from_zero(b + an / c)
        h *= d * c
        if abs(d * c - 1.0) < _DIGITS:
            break
    return scale * h


def _beta_ratio(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function (Numerical Recipes, 3rd ed., 6.4)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    h = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d = 1.0 / _away_from_zero(1.0 + even * d)
        c = _away_from_zero(1.0 + even / c)
        h *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d = 1.0 / _away_from_zero(1.0 + odd * d)
        c = _away_from_zero(1.0 + odd / c)
        h *= d * c
        if abs(d * c - 1.0) < _DIGITS:
            break
    return h


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
