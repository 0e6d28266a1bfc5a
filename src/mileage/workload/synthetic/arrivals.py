"""Arrivals: point processes whose mean rate is exactly the one that is asked for.

Every process begins in its stationary state: the first gap of a renewal process is the rest of a
gap that time 0 falls into (length-biased, then cut at a uniform place). Then the expected number of
arrivals in t seconds is rate * t for every t. A process that begins with a whole gap has up to
(cv**2 - 1) / 2 arrivals too many, which is many where traffic is bursty; and one whose gaps are
clipped has the wrong rate for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError

__all__ = [
    "Arrivals",
    "DiurnalArrivals",
    "EvenArrivals",
    "GammaArrivals",
    "OnOffArrivals",
    "PoissonArrivals",
    "WeibullArrivals",
    "arrival_times",
    "gamma_gaps",
    "weibull_gaps",
    "weibull_shape",
]

_CV_MAX: Final = 50.0
_SHAPES: Final = (0.05, 1000.0)


class PoissonArrivals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="poisson",
):
    """Independent arrivals: exponential gaps, a coefficient of variation of 1."""


class EvenArrivals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="even",
):
    """One every 1/rate seconds, the first at 0."""


class GammaArrivals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="gamma",
):
    """Independent gaps with a gamma distribution."""

    cv: float
    """Standard deviation of the gaps over their mean: above 1 bursty, below 1 regular."""

    def __post_init__(self) -> None:
        require_range("cv", self.cv, 0.01, _CV_MAX)


class WeibullArrivals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="weibull",
):
    """Independent gaps with a Weibull distribution."""

    cv: float
    """Standard deviation of the gaps over their mean."""

    def __post_init__(self) -> None:
        require_range("cv", self.cv, 0.01, _CV_MAX)


class OnOffArrivals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="onoff",
):
    """Poisson arrivals whose rate switches between two values (a two-state MMPP).

    The times in each state are exponential; the mean over both is the rate that was asked for.
    """

    on_s: float
    """Mean time of a burst."""
    off_s: float
    """Mean time between two bursts."""
    off_ratio: float = 0.0
    """The rate between bursts, as a share of that in a burst."""

    def __post_init__(self) -> None:
        require_positive("on_s", self.on_s)
        require_positive("off_s", self.off_s)
        require_range("off_ratio", self.off_ratio, 0.0, 1.0)


class DiurnalArrivals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="diurnal",
):
    """Poisson arrivals with a rate that changes over a period, a day for instance.

    The mean over a whole period is the rate that was asked for.
    """

    period_s: float = 86_400.0
    peak_ratio: float = 3.0
    """The highest rate over the lowest, of a sine that begins at its lowest."""
    shape: tuple[float, ...] = ()
    """Instead of the sine: relative rates of as many equal parts of the period."""

    def __post_init__(self) -> None:
        require_positive("period_s", self.period_s)
        require_at_least("peak_ratio", self.peak_ratio, 1.0)
        for level in self.shape:
            require_at_least("shape", level, 0.0)
        if self.shape and not sum(self.shape) > 0:
            raise ConfigError("shape", self.shape, "at least one rate above 0")


Arrivals: TypeAlias = (
    PoissonArrivals
    | EvenArrivals
    | GammaArrivals
    | WeibullArrivals
    | OnOffArrivals
    | DiurnalArrivals
)


def arrival_times(arrivals: Arrivals, rate_rps: float, rng: Random) -> Iterator[float]:
    """Seconds since the start of each arrival, without end, in ascending order."""
    match arrivals:
        case PoissonArrivals():
            return _renewal(rng.expovariate(rate_rps), lambda: rng.expovariate(rate_rps))
        case EvenArrivals():
            return (index / rate_rps for index in _count())
        case GammaArrivals():
            return gamma_gaps(rate_rps, arrivals.cv**-2, rng)
        case WeibullArrivals():
            return weibull_gaps(rate_rps, weibull_shape(arrivals.cv), rng)
        case OnOffArrivals():
            return _on_off(arrivals, rate_rps, rng)
        case DiurnalArrivals():
            return _thinned(_level(arrivals), rate_rps, rng)


def gamma_gaps(rate_rps: float, shape: float, rng: Random) -> Iterator[float]:
    """Arrivals with gamma gaps of this shape (1 / cv**2) and the mean 1 / rate."""
    scale_s = 1.0 / (rate_rps * shape)
    # A gap that time 0 falls into has the length-biased density, x * f(x) / mean: gamma again.
    first_s = rng.random() * rng.gammavariate(shape + 1.0, scale_s)
    return _renewal(first_s, lambda: rng.gammavariate(shape, scale_s))


def weibull_gaps(rate_rps: float, shape: float, rng: Random) -> Iterator[float]:
    """Arrivals with Weibull gaps of this shape and the mean 1 / rate."""
    scale_s = 1.0 / (rate_rps * math.gamma(1.0 + 1.0 / shape))
    # Length-biased: with y = (x / scale) ** shape the density is y ** (1/shape) * exp(-y), a gamma.
    biased_s = scale_s * rng.gammavariate(1.0 + 1.0 / shape, 1.0) ** (1.0 / shape)
    return _renewal(rng.random() * biased_s, lambda: rng.weibullvariate(scale_s, shape))


def weibull_shape(cv: float) -> float:
    """The shape of a Weibull distribution with this coefficient of variation, by bisection."""
    low, high = _SHAPES
    target = math.log1p(cv * cv)
    for _ in range(100):
        shape = math.sqrt(low * high)
        if math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape) > target:
            low = shape
        else:
            high = shape
    return math.sqrt(low * high)


def _renewal(first_s: float, gap: Callable[[], float]) -> Iterator[float]:
    now_s = first_s
    while True:
        yield now_s
        now_s += gap()


def _count() -> Iterator[int]:
    index = 0
    while True:
        yield index
        index += 1


def _on_off(arrivals: OnOffArrivals, rate_rps: float, rng: Random) -> Iterator[float]:
    on_s, off_s, ratio = arrivals.on_s, arrivals.off_s, arrivals.off_ratio
    on_rps = rate_rps * (on_s + off_s) / (on_s + ratio * off_s)
    rates, lasts = (on_rps, on_rps * ratio), (on_s, off_s)
    state = 0 if rng.random() * (on_s + off_s) < on_s else 1
    now_s, switch_s = 0.0, rng.expovariate(1.0 / lasts[state])
    while True:
        rate = rates[state]
        # Both waits are memoryless: what is cut off at a switch is drawn anew.
        next_s = now_s + rng.expovariate(rate) if rate else math.inf
        if next_s < switch_s:
            now_s = next_s
            yield now_s
        else:
            now_s, state = switch_s, 1 - state
            switch_s = now_s + rng.expovariate(1.0 / lasts[state])


def _level(arrivals: DiurnalArrivals) -> tuple[Callable[[float], float], float]:
    """The rate at a moment as a multiple of the mean, and the largest there is."""
    period_s, shape = arrivals.period_s, arrivals.shape
    if shape:
        mean = sum(shape) / len(shape)
        levels = [level / mean for level in shape]
        parts = len(levels)
        return (lambda t: levels[min(parts - 1, int(t % period_s / period_s * parts))]), max(levels)
    swing = (arrivals.peak_ratio - 1.0) / (arrivals.peak_ratio + 1.0)
    turn = 2.0 * math.pi / period_s
    return (lambda t: 1.0 - swing * math.cos(turn * t)), 1.0 + swing


def _thinned(
    level: tuple[Callable[[float], float], float], rate_rps: float, rng: Random
) -> Iterator[float]:
    """Lewis and Shedler's thinning: exact, whatever the rate does below its bound."""
    at, highest = level
    now_s = 0.0
    while True:
        now_s += rng.expovariate(rate_rps * highest)
        if rng.random() * highest < at(now_s):
            yield now_s
