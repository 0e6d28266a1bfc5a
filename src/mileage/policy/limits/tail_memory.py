"""The tail and memory limit: halve on a bad tail or a full cache, else double."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.limit import LimitDecision, LimitSignals, RequestSample
from mileage.policy.limits.memory import KvMemory
from mileage.policy.limits.readings import fresh, positive

__all__ = ["TailMemoryConfig", "TailMemoryLimit"]

_COMPANY_RATIO = 1.1
_SAMPLES_MAX = 1000


class TailMemoryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.tail_memory]`: used where `policy = "tail_memory"`."""

    kv_mark_ratio: float = 0.85
    """KV-cache usage above which the limit is halved."""
    halved_min: int = 2
    """It is not halved below this."""
    doubled_max: int = 64
    """It is not doubled beyond this."""
    window_s: float = 10.0
    """Requests answered within this time make up the tail."""
    samples_min: int = 10
    """With fewer of them the tail is not judged."""
    period_s: float = 2.0
    """One change per period, so that its effect is seen before the next."""
    retry_s: float = 10.0
    """After it was halved, the limit is not doubled for this long."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""

    def __post_init__(self) -> None:
        key = "governor.tail_memory"
        require_range(f"{key}.kv_mark_ratio", self.kv_mark_ratio, 0.1, 1.0)
        require_at_least(f"{key}.halved_min", self.halved_min, 1)
        if self.doubled_max < self.halved_min:
            expected = f"at least halved_min ({self.halved_min})"
            raise ConfigError(f"{key}.doubled_max", self.doubled_max, expected)
        require_at_least(f"{key}.doubled_max", self.doubled_max, 1)
        require_positive(f"{key}.window_s", self.window_s)
        require_range(f"{key}.samples_min", self.samples_min, 1, _SAMPLES_MAX)
        require_positive(f"{key}.period_s", self.period_s)
        require_at_least(f"{key}.retry_s", self.retry_s, 0.0)
        require_positive(f"{key}.view_max_age_s", self.view_max_age_s)


class TailMemoryLimit:
    """Halve when the p99 TTFT misses its target or the KV cache is above its mark; else double.

    The TTFT is the engine's, from dispatch: the time that a request is held before is longer the
    lower the limit is, and counting it would halve the limit because it was halved. The limit
    doubles only where it is reached. A stale or missing view is no sign of a full cache; where an
    engine has stopped telling, the limit does not double.
    """

    __slots__ = ("_bounds", "_config", "_due_s", "_limit", "_memory", "_peak", "_retry_s", "_ttft")

    def __init__(
        self, config: TailMemoryConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED
    ) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit
        self._memory = KvMemory(config.kv_mark_ratio)
        self._ttft: deque[tuple[float, float]] = deque(maxlen=_SAMPLES_MAX)
        self._peak = 0
        self._due_s = self._retry_s = -math.inf

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """At most one step; in between, samples are gathered."""
        config = self._config
        self._limit = self._bounds.clamp(self._limit, signals)
        self._peak = max(self._peak, signals.in_flight_peak)
        view = fresh(signals.view, now_s, config.view_max_age_s)
        self._memory.observe(view, signals.in_flight)
        for sample in signals.samples:
            self._learn(sample, now_s)
        while self._ttft and self._ttft[0][0] < now_s - config.window_s:
            self._ttft.popleft()
        if now_s < self._due_s:
            return LimitDecision(self._limit, f"held: {config.period_s:g} s between changes")
        limit, reason = self._step(signals, now_s)
        self._peak = signals.in_flight
        if limit != self._limit:
            self._due_s = now_s + config.period_s
            if limit < self._limit:
                self._retry_s = now_s + config.retry_s
            self._limit = limit
            # The tail of the other limit: it must not be held against this one.
            self._ttft.clear()
        return LimitDecision(limit, reason)

    def _learn(self, sample: RequestSample, now_s: float) -> None:
        ttft_s = positive(sample.service_ttft_s)
        if ttft_s is not None and sample.running_mean <= self._limit * _COMPANY_RATIO + 1.0:
            self._ttft.append((now_s, ttft_s))

    def _step(self, signals: LimitSignals, now_s: float) -> tuple[int, str]:
        limit = self._limit
        seen, missed = self._tail(positive(signals.ttft_target_s))
        if self._memory.above_mark:
            mark = self._config.kv_mark_ratio
            seen = f"KV cache {self._memory.usage_ratio:.0%} full, above {mark:.0%}"
            missed = True
        if missed:
            floor = min(self._config.halved_min, limit)
            lower = self._bounds.clamp(max(floor, limit // 2), signals)
            return lower, f"{seen}: {'halved to' if lower < limit else 'held at'} {lower}"
        if self._peak < limit:
            return limit, f"{seen}: held at {limit}, at most {self._peak} in flight"
        if self._memory.lost:
            return limit, f"{seen}, KV usage unknown: held at {limit}"
        if now_s < self._retry_s:
            wait_s = self._retry_s - now_s
            return limit, f"{seen}: held at {limit}, tried again in {wait_s:.0f} s"
        most = max(limit, self._config.doubled_max)
        higher = self._bounds.clamp(min(2 * limit, most), signals)
        return higher, f"{seen}: {'doubled to' if higher > limit else 'held at'} {higher}"

    def _tail(self, target_s: float | None) -> tuple[str, bool]:
        """What is known of the tail, and whether it misses the target."""
        if target_s is None:
            return "no TTFT target", False
        count = len(self._ttft)
        if count < self._config.samples_min:
            return f"{count} of {self._config.samples_min} requests answered", False
        ordered = sorted(ttft_s for _, ttft_s in self._ttft)
        p99_s = ordered[math.ceil(0.99 * count) - 1]
        verdict = "above" if p99_s > target_s else "within"
        text = f"p99 TTFT {p99_s * 1e3:.0f} ms {verdict} {target_s * 1e3:.0f} ms"
        return text, p99_s > target_s
