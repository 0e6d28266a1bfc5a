"""The volatility limit: the less steady the arrivals, the fewer requests at once."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.limit import LimitDecision, LimitSignals
from mileage.policy.limits.readings import count_of

__all__ = ["VolatilityConfig", "VolatilityLimit"]


class VolatilityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.volatility]`: used where `policy = "volatility"`."""

    window_s: float = 10.0
    """How far back arrivals are looked at, in bins of one second."""
    steady_max: int = 64
    """The limit for steady arrivals, on an engine that runs as many; scaled to others."""
    volatile_min: int = 8
    """The limit for the most volatile arrivals; scaled likewise."""
    arrivals_per_s_min: float = 1.0
    """With fewer, chance is all there is to see: the limit is held."""
    period_s: float = 1.0
    """One change per period, so that its effect is seen before the next."""

    def __post_init__(self) -> None:
        require_range("governor.volatility.window_s", self.window_s, 3.0, 600.0)
        require_range("governor.volatility.steady_max", self.steady_max, 1, 100_000)
        if not 1 <= self.volatile_min <= self.steady_max:
            key, most = "governor.volatility.volatile_min", self.steady_max
            raise ConfigError(key, self.volatile_min, f"1..steady_max ({most})")
        require_at_least("governor.volatility.arrivals_per_s_min", self.arrivals_per_s_min, 0.0)
        require_positive("governor.volatility.period_s", self.period_s)


class VolatilityLimit:
    """`max(volatile_min, steady_max * (1 - volatility))`, scaled to what the engine runs at once.

    Volatility is the sigma/mean of arrivals per second beyond what chance alone gives: counts of a
    Poisson process have a variance equal to their mean, which is taken off first. Without that,
    little traffic would look volatile for no other reason than being little.

    It follows the arrivals alone: neither views nor samples are looked at, and so it also moves
    while the replica is under-used.
    """

    __slots__ = ("_bins", "_bounds", "_config", "_due_s", "_limit", "_start_s", "_told_s")

    def __init__(
        self, config: VolatilityConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED
    ) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit
        self._bins: deque[float] = deque(maxlen=round(config.window_s))
        self._start_s: float | None = None
        self._told_s = 0.0
        self._due_s = -math.inf

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """Follows the window once it is full; an open bin (the current second) does not count."""
        self._limit = self._bounds.clamp(self._limit, signals)
        self._count(count_of(signals.arrivals), now_s)
        if now_s < self._due_s:
            return LimitDecision(self._limit, f"held: {self._config.period_s:g} s between changes")
        full = list(self._bins)[:-1]
        needed = (self._bins.maxlen or 0) - 1
        if len(full) < needed:
            return LimitDecision(
                self._limit, f"arrivals known for {len(full)} s of {needed} s: held"
            )
        mean = sum(full) / len(full)
        if mean < self._config.arrivals_per_s_min:
            return LimitDecision(self._limit, f"{mean:.1f} arrivals/s are too few to judge: held")
        volatility = _volatility(full, mean)
        limit = self._bounds.clamp(self._scaled(volatility, signals), signals)
        reason = f"{mean:.1f} arrivals/s, volatility {volatility:.2f}: {limit}"
        if limit != self._limit:
            self._limit = limit
            self._due_s = now_s + self._config.period_s
        return LimitDecision(limit, reason)

    def _count(self, arrivals: float, now_s: float) -> None:
        """Spread the arrivals evenly over the time since the last call.

        A gap of more than the window, or the first call, starts the window afresh: what came
        in before is not known second by second.
        """
        bins = self._bins
        if self._start_s is None or now_s - self._told_s > self._config.window_s:
            bins.clear()
            self._start_s = self._told_s = now_s
            bins.append(0.0)
            return
        elapsed_s = now_s - self._told_s
        begin_s = self._told_s
        self._told_s = now_s
        if elapsed_s <= 0.0:
            bins[-1] += arrivals
            return
        while now_s >= self._start_s + 1.0:
            end_s = self._start_s + 1.0
            bins[-1] += arrivals * (end_s - begin_s) / elapsed_s
            begin_s = self._start_s = end_s
            bins.append(0.0)
        bins[-1] += arrivals * (now_s - begin_s) / elapsed_s

    def _scaled(self, volatility: float, signals: LimitSignals) -> int:
        config = self._config
        base = max(config.volatile_min, config.steady_max * (1.0 - volatility))
        known = signals.running_max is not None and signals.running_max >= 1
        scale = self._bounds.ceiling(signals) / config.steady_max if known else 1.0
        return round(base * scale)


def _volatility(counts: list[float], mean: float) -> float:
    """Sigma/mean beyond Poisson's, in 0..1."""
    variance = sum((c - mean) ** 2 for c in counts) / (len(counts) - 1)
    return min(1.0, math.sqrt(max(0.0, variance - mean)) / mean)
