"""Lengths: distributions of prompt and output tokens, and how each is drawn."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, pairwise
from random import Random
from statistics import NormalDist
from typing import Final, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.workload.synthetic.zipf import Zipf
from mileage.workload.trace_check import TOKENS_MAX

__all__ = [
    "EmpiricalLength",
    "FixedLength",
    "Length",
    "LognormalLength",
    "QuantileLength",
    "UniformLength",
    "ZipfLength",
    "drawer",
    "mean_tokens",
]

_HIGH: Final = 131_072
_TABLE_MAX: Final = 1_000_000
_PROBABILITY_MIN: Final = 2.0**-60
_normal: Final = NormalDist()


class FixedLength(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="fixed",
):
    """Always the same."""

    tokens: int

    def __post_init__(self) -> None:
        require_range("tokens", self.tokens, 1, TOKENS_MAX)


class UniformLength(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="uniform",
):
    """Each whole number from `low` to `high` equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _require_span(self.low, self.high)


class LognormalLength(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="lognormal",
):
    """exp(normal), rounded, given that it lies in `low`..`high`: nothing piles up at the bounds."""

    median: float
    """Of the distribution without bounds."""
    sigma: float
    """Standard deviation of the logarithm; the mean is median * exp(sigma**2 / 2)."""
    low: int = 1
    high: int = _HIGH

    def __post_init__(self) -> None:
        require_positive("median", self.median, "tokens")
        require_range("sigma", self.sigma, 1e-6, 10.0)
        _require_span(self.low, self.high)
        bottom, top = _probabilities(self)
        if top - bottom < 1e-6:
            raise ConfigError(
                "median",
                self.median,
                f"one with which lengths in {self.low}..{self.high} are drawn",
            )


class ZipfLength(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="zipf",
):
    """`low` most often; the k-th number above it with probability proportional to k ** -alpha."""

    alpha: float
    low: int = 1
    high: int = _HIGH

    def __post_init__(self) -> None:
        _require_span(self.low, self.high)
        require_range("alpha", self.alpha, 0.0, 10.0)


class QuantileLength(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="quantiles",
):
    """As a table of quantiles says; between two of them linear."""

    table: tuple[tuple[float, float], ...]
    """(q, tokens), both in ascending order, from q 0 to q 1."""

    def __post_init__(self) -> None:
        table = self.table
        if len(table) < 2 or table[0][0] != 0.0 or table[-1][0] != 1.0:
            raise ConfigError("table", table, "at least two (q, tokens), the first q 0, the last 1")
        for (q, tokens), (above, more) in pairwise(table):
            if not (q < above and 1 <= tokens <= more <= TOKENS_MAX):
                raise ConfigError("table", (above, more), f"more than {(q, tokens)} in both")


class EmpiricalLength(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="empirical",
):
    """One of the given lengths, each as often as its weight says."""

    tokens: tuple[int, ...]
    weights: tuple[float, ...] = ()
    """Empty: all equal."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.tokens) <= _TABLE_MAX:
            raise ConfigError("tokens", len(self.tokens), f"1..{_TABLE_MAX} lengths")
        for tokens in self.tokens:
            require_range("tokens", tokens, 1, TOKENS_MAX)
        if self.weights:
            if len(self.weights) != len(self.tokens):
                raise ConfigError(
                    "weights", len(self.weights), f"one for each of {len(self.tokens)}"
                )
            for weight in self.weights:
                require_at_least("weights", weight, 0.0)
            require_positive("weights", sum(self.weights), "in all")


Length: TypeAlias = (
    FixedLength | UniformLength | LognormalLength | ZipfLength | QuantileLength | EmpiricalLength
)


def drawer(length: Length) -> Callable[[Random], int]:
    """A function that draws from the distribution: at least 1, one or two uniform numbers each."""
    match length:
        case FixedLength():
            tokens = length.tokens
            return lambda rng: tokens
        case UniformLength():
            low, span = length.low, length.high - length.low + 1
            return lambda rng: low + int(rng.random() * span)
        case LognormalLength():
            return _lognormal(length)
        case ZipfLength():
            below, zipf = length.low - 1, Zipf(length.high - length.low + 1, length.alpha)
            return lambda rng: below + zipf.draw(rng)
        case QuantileLength():
            return _quantiles(length)
        case EmpiricalLength():
            return _empirical(length)


def mean_tokens(length: Length) -> float:
    """The mean of the distribution; before rounding where it is a continuous one."""
    match length:
        case FixedLength():
            return length.tokens
        case UniformLength():
            return (length.low + length.high) / 2
        case LognormalLength():
            bottom, top = _probabilities(length)
            sigma, mu = length.sigma, math.log(length.median)
            shifted = [
                _normal.cdf((math.log(edge) - mu) / sigma - sigma)
                for edge in (length.low - 0.5, length.high + 0.5)
            ]
            whole = length.median * math.exp(sigma * sigma / 2)
            return whole * (shifted[1] - shifted[0]) / (top - bottom)
        case ZipfLength():
            chances = Zipf(length.high - length.low + 1, length.alpha).probabilities()
            return length.low + math.fsum(k * chance for k, chance in enumerate(chances))
        case QuantileLength():
            return math.fsum(
                (q2 - q1) * (t1 + t2) / 2 for (q1, t1), (q2, t2) in pairwise(length.table)
            )
        case EmpiricalLength():
            weights = length.weights or (1.0,) * len(length.tokens)
            return math.fsum(map(float.__mul__, map(float, length.tokens), weights)) / sum(weights)


def _require_span(low: int, high: int) -> None:
    require_range("low", low, 1, TOKENS_MAX)
    require_range("high", high, low, TOKENS_MAX)


def _probabilities(length: LognormalLength) -> tuple[float, float]:
    """How likely the unbounded distribution is below the least and below the largest length."""
    mu = math.log(length.median)
    low, high = (
        _normal.cdf((math.log(edge) - mu) / length.sigma)
        for edge in (length.low - 0.5, length.high + 0.5)
    )
    return low, high


def _lognormal(length: LognormalLength) -> Callable[[Random], int]:
    bottom, top = _probabilities(length)
    span = top - bottom
    mu, sigma, low, high = math.log(length.median), length.sigma, length.low, length.high
    inverse, exp = _normal.inv_cdf, math.exp
    most = 1.0 - 2.0**-53

    def draw(rng: Random) -> int:
        chance = min(most, max(_PROBABILITY_MIN, bottom + span * rng.random()))
        return min(high, max(low, round(exp(mu + sigma * inverse(chance)))))

    return draw


def _quantiles(length: QuantileLength) -> Callable[[Random], int]:
    levels = [q for q, _ in length.table]
    tokens = [value for _, value in length.table]

    def draw(rng: Random) -> int:
        q = rng.random()
        above = max(1, bisect_left(levels, q))
        share = (q - levels[above - 1]) / (levels[above] - levels[above - 1])
        return round(tokens[above - 1] + share * (tokens[above] - tokens[above - 1]))

    return draw


def _empirical(length: EmpiricalLength) -> Callable[[Random], int]:
    tokens = length.tokens
    if not length.weights:
        return lambda rng: tokens[int(rng.random() * len(tokens))]
    bounds = list(accumulate(length.weights))
    total, last = bounds[-1], len(tokens) - 1

    def draw(rng: Random) -> int:
        # bisect_left on (0, total]: a length of weight 0 is never drawn.
        return tokens[min(last, bisect_left(bounds, (1.0 - rng.random()) * total))]

    return draw
