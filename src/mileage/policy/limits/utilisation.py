"""The utilisation limit: grow while the hardware computes, shrink while it idles."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.limit import LimitDecision, LimitSignals
from mileage.policy.limits.memory import KvMemory
from mileage.policy.limits.readings import fresh, ratio_of

__all__ = ["UtilisationConfig", "UtilisationLimit"]


class UtilisationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.utilisation]`: used where `policy = "utilisation"`."""

    high_ratio: float = 0.85
    """Compute in use, on average over `high_samples`, from which the limit grows."""
    high_samples: int = 3
    """Observations that must agree before the limit grows."""
    low_ratio: float = 0.40
    """Compute in use, on average over `low_samples`, up to which the limit shrinks."""
    low_samples: int = 5
    """Observations that must agree before the limit shrinks."""
    growth: float = 1.5
    """The limit is multiplied by this."""
    shrink: float = 1.3
    """The limit is divided by this."""
    shrink_min: int = 16
    """It does not shrink below this."""
    kv_mark_ratio: float = 0.85
    """It does not grow beyond what keeps KV-cache usage below this."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""

    def __post_init__(self) -> None:
        key = "governor.utilisation"
        require_range(f"{key}.high_ratio", self.high_ratio, 0.0, 1.0)
        if not 0 <= self.low_ratio < self.high_ratio:
            expected = f"at least 0, below high_ratio ({self.high_ratio})"
            raise ConfigError(f"{key}.low_ratio", self.low_ratio, expected)
        require_range(f"{key}.high_samples", self.high_samples, 1, 100)
        require_range(f"{key}.low_samples", self.low_samples, 1, 100)
        require_range(f"{key}.growth", self.growth, 1.01, 4.0)
        require_range(f"{key}.shrink", self.shrink, 1.01, 4.0)
        require_at_least(f"{key}.shrink_min", self.shrink_min, 1)
        require_range(f"{key}.kv_mark_ratio", self.kv_mark_ratio, 0.1, 1.0)
        require_positive(f"{key}.view_max_age_s", self.view_max_age_s)


class UtilisationLimit:
    """x1.5 when compute is at least 85 % in use, /1.3 when it is at most 40 % in use.

    Each observation counts once, and only while it is fresh; after a change they are gathered anew,
    so that its effect is seen before the next. The limit grows only where it is reached, and never
    beyond what fits into the KV cache up to the mark; where an engine has stopped telling its usage
    it does not grow at all.
    """

    __slots__ = ("_bounds", "_busy", "_config", "_limit", "_memory", "_observed_s", "_peak")

    def __init__(
        self, config: UtilisationConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED
    ) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit
        self._memory = KvMemory(config.kv_mark_ratio)
        self._busy: deque[float] = deque(maxlen=max(config.high_samples, config.low_samples))
        self._observed_s = -math.inf
        self._peak = 0

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """A step once enough fresh observations agree; held without."""
        self._limit = self._bounds.clamp(self._limit, signals)
        self._peak = max(self._peak, signals.in_flight_peak)
        view = fresh(signals.view, now_s, self._config.view_max_age_s)
        self._memory.observe(view, signals.in_flight)
        busy = None if view is None else ratio_of(view.compute_busy_ratio)
        if view is None or busy is None:
            # What was seen before the gap says nothing about what comes after it.
            self._busy.clear()
            why = "no fresh observation" if view is None else "the engine's compute is not observed"
            return LimitDecision(self._limit, f"{why}: held at {self._limit}")
        if view.observed_s > self._observed_s:
            self._observed_s = view.observed_s
            self._busy.append(busy)
        limit, reason = self._step(signals)
        if limit != self._limit:
            self._limit = limit
            self._busy.clear()
            self._peak = signals.in_flight
        return LimitDecision(limit, reason)

    def _step(self, signals: LimitSignals) -> tuple[int, str]:
        config, limit = self._config, self._limit
        high = self._mean(config.high_samples)
        if high is not None and high >= config.high_ratio:
            return self._grown(signals, f"compute {high:.0%} in use")
        low = self._mean(config.low_samples)
        if low is not None and low <= config.low_ratio:
            floor = min(config.shrink_min, limit)
            lower = self._bounds.clamp(max(floor, math.floor(limit / config.shrink)), signals)
            change = "cut to" if lower < limit else "held at"
            return lower, f"compute {low:.0%} in use: {change} {lower}"
        if high is None:
            return limit, f"{len(self._busy)} of {config.high_samples} observations: held"
        return limit, f"compute {high:.0%} in use: held at {limit}"

    def _grown(self, signals: LimitSignals, seen: str) -> tuple[int, str]:
        limit = self._limit
        if self._peak < limit:
            return limit, f"{seen}: held at {limit}, at most {self._peak} in flight"
        if self._memory.lost:
            return limit, f"{seen}, KV usage unknown: held at {limit}"
        higher = float(math.ceil(limit * self._config.growth))
        fits = self._memory.bound()
        if fits is not None and fits < higher:
            seen += f", KV cache {self._memory.usage_ratio:.0%} full"
            higher = max(float(limit), fits)
        grown = self._bounds.clamp(higher, signals)
        return grown, f"{seen}: {'grown to' if grown > limit else 'held at'} {grown}"

    def _mean(self, count: int) -> float | None:
        """Mean of the last `count` observations, None with fewer."""
        if len(self._busy) < count:
            return None
        return sum(list(self._busy)[-count:]) / count
