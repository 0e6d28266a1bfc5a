"""The AIMD limit: grow by one while TPOT meets the target, halve when it does not."""

from __future__ import annotations

import math

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range, require_up_to
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.limit import LimitDecision, LimitSignals, RequestSample
from mileage.policy.limits.readings import positive

__all__ = ["AimdConfig", "AimdLimit"]

_COMPANY_RATIO = 1.1
_SILENCE_S = 60.0


class AimdConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.aimd]`: used where `policy = "aimd"`."""

    backoff_ratio: float = 0.5
    """What is kept of the limit after a missed target."""
    miss_ratio: float = 1.1
    """The target is missed when the mean TPOT is above this many times the ITL target."""
    smoothing_ratio: float = 0.2
    """Weight of one request in the moving mean of TPOT."""
    samples_min: int = 5
    """Requests that must have ended under a limit before it is lowered again."""
    period_s: float = 1.0
    """One change per period, so that its effect is seen before the next."""

    def __post_init__(self) -> None:
        require_range("governor.aimd.backoff_ratio", self.backoff_ratio, 0.05, 0.95)
        require_range("governor.aimd.miss_ratio", self.miss_ratio, 0.1, 10.0)
        require_up_to("governor.aimd.smoothing_ratio", self.smoothing_ratio, 1.0)
        require_at_least("governor.aimd.samples_min", self.samples_min, 1)
        require_positive("governor.aimd.period_s", self.period_s)


class AimdLimit:
    """Grow by one while TPOT meets the target; keep `backoff_ratio` of the limit otherwise.

    The limit holds while the replica is under-used: an idle replica meets every target, so its TPOT
    says nothing about a higher limit. After a back-off, requests that ran in more company than the
    new limit allows are no evidence against it: counting them would halve again and again for the
    same mistake. What was learned before a minute without any word is forgotten. Views are not
    looked at. (Chiu and Jain, 1989: increase by adding, decrease by multiplying.)
    """

    __slots__ = (
        "_bounds",
        "_config",
        "_due_s",
        "_limit",
        "_peak",
        "_samples",
        "_told_s",
        "_tpot_s",
    )

    def __init__(self, config: AimdConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit
        self._tpot_s: float | None = None
        self._samples = 0
        self._peak = 0
        self._due_s = self._told_s = -math.inf

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """At most one step; in between, samples are gathered."""
        self._limit = self._bounds.clamp(self._limit, signals)
        self._peak = max(self._peak, signals.in_flight_peak)
        if now_s - self._told_s > max(_SILENCE_S, 2 * self._config.period_s):
            self._tpot_s, self._samples = None, 0
        self._told_s = now_s
        for sample in signals.samples:
            self._learn(sample)
        if now_s < self._due_s:
            return LimitDecision(self._limit, f"held: {self._config.period_s:g} s between changes")
        limit, reason = self._step(signals)
        # What was at most in flight counts from the decision before.
        self._peak = signals.in_flight
        if limit != self._limit:
            self._due_s = now_s + self._config.period_s
            if limit < self._limit:
                self._tpot_s, self._samples = None, 0
            self._limit = limit
        return LimitDecision(limit, reason)

    def _learn(self, sample: RequestSample) -> None:
        tpot_s = positive(sample.step_s)
        company = self._limit * _COMPANY_RATIO + 1.0
        if tpot_s is None or not sample.running_mean <= company:
            return
        self._samples += 1
        if self._tpot_s is None:
            self._tpot_s = tpot_s
        else:
            self._tpot_s += self._config.smoothing_ratio * (tpot_s - self._tpot_s)

    def _step(self, signals: LimitSignals) -> tuple[int, str]:
        limit, tpot_s = self._limit, self._tpot_s
        target_s = positive(signals.itl_target_s)
        seen = "no requests ended yet" if tpot_s is None else f"TPOT {tpot_s * 1e3:.0f} ms"
        if target_s is not None and tpot_s is not None:
            most_s = self._config.miss_ratio * target_s
            if tpot_s > most_s:
                seen += f" above {most_s * 1e3:.0f} ms"
                if self._samples < self._config.samples_min:
                    return limit, f"{seen}: held at {limit}, {self._samples} requests so far"
                lower = self._bounds.clamp(math.floor(limit * self._config.backoff_ratio), signals)
                return lower, f"{seen}: cut to {lower}"
            seen += f" within {most_s * 1e3:.0f} ms"
        elif target_s is None:
            seen = "no ITL target"
        if self._peak < limit:
            return limit, f"{seen}: held at {limit}, at most {self._peak} in flight"
        if target_s is not None and tpot_s is None:
            return limit, f"{seen}: held at {limit}"
        higher = self._bounds.clamp(limit + 1, signals)
        return higher, f"{seen}: {'grown to' if higher > limit else 'held at'} {higher}"
