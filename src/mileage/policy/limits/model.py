"""The model limit: the most requests whose steps still meet the ITL target."""

from __future__ import annotations

import math

import msgspec

from mileage.core.bounds import require_positive, require_range, require_up_to
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.gradient import GradientStep
from mileage.policy.limits.latency import LatencyModel
from mileage.policy.limits.limit import LimitDecision, LimitSignals
from mileage.policy.limits.memory import KvMemory
from mileage.policy.limits.readings import fresh, positive

__all__ = ["ModelConfig", "ModelLimit"]

_REACH = 2.0
_DEADBAND_RATIO = 0.05
_PREFILL_MARGIN = 1.25
_SLACK_STEP = 1.25
_SLACK_MAX = 16.0
_SLACK_GAP_RATIO = 0.7
_STALLS_MIN = 8
_ALONE_MAX_S = 120.0
"""How long it keeps to one request at a time, for what company cost, before it tries again."""
_FEEDBACK_SAMPLES = 32
_RECENT_MIN = 8


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.model]`: used where `policy = "model"`."""

    cap_ratio: float = 0.9
    """The part of the ITL target that a step may take."""
    attained_ratio: float = 0.9
    """The part of requests whose worst gaps must keep within that."""
    kv_mark_ratio: float = 0.9
    """The part of the KV cache that may be filled."""
    engine_policies: bool = False
    """The engines have this policy's other half inside (`policy.budget`, `policy.ordering`): they
    keep the ITL target themselves, and prefill by deadline. Then only memory limits requests."""
    period_s: float = 1.0
    """One change per period, so that its effect is seen before the next."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""

    def __post_init__(self) -> None:
        key = "governor.model"
        require_up_to(f"{key}.cap_ratio", self.cap_ratio, 1.0)
        require_range(f"{key}.attained_ratio", self.attained_ratio, 0.5, 0.99)
        require_range(f"{key}.kv_mark_ratio", self.kv_mark_ratio, 0.1, 1.0)
        require_positive(f"{key}.period_s", self.period_s)
        require_positive(f"{key}.view_max_age_s", self.view_max_age_s)


class ModelLimit:
    """Go to where the fitted step, with the usual stall on top, just meets 0.9 x the ITL target.

    It begins wherever it is told to, and holds until enough requests have ended. The limit rises
    only where it is reached, at most twofold at once and never beyond twice the load that requests
    have met, since the fit is not to be trusted further out; it falls to where the fit says, at
    once. While the fit is poor, feedback takes its place (`GradientStep`).

    Without an ITL target it is what the engine runs at once. Memory bounds it by fresh views alone;
    where an engine has stopped telling its KV usage, the limit does not rise.
    """

    __slots__ = (
        "_bounded",
        "_bounds",
        "_changed_s",
        "_config",
        "_due_s",
        "_gradient",
        "_latency",
        "_limit",
        "_memory",
        "_peak",
        "_prefill_tokens_max",
        "_slack",
        "_stalls",
        "_stalls_s",
    )

    def __init__(self, config: ModelConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit
        self._latency = LatencyModel()
        self._gradient = GradientStep()
        self._memory = KvMemory(config.kv_mark_ratio)
        self._peak = 0
        self._due_s = self._changed_s = -math.inf
        self._prefill_tokens_max: int | None = None
        self._bounded = False
        self._slack = 1.0
        self._stalls: list[float] = []
        self._stalls_s = -math.inf

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """At most one change per period; in between, samples are gathered."""
        config = self._config
        limit = self._limit = self._bounds.clamp(self._limit, signals)
        self._peak = max(self._peak, signals.in_flight_peak)
        self._latency.learn(signals.samples, now_s)
        self._gradient.learn(signals.samples, limit)
        view = fresh(signals.view, now_s, config.view_max_age_s)
        self._memory.observe(view, signals.in_flight)
        if now_s < self._due_s:
            reason = f"held: {config.period_s:g} s between changes"
            return LimitDecision(limit, reason, self._prefill_tokens_max)
        # Those met under the limit and the bound of now; until there are enough, the former stand.
        stalls = self._latency.stalls(self._changed_s) if self._bounded else []
        proven = len(stalls) >= _STALLS_MIN
        if proven:
            self._stalls, self._stalls_s = stalls, now_s
        elif limit == 1 and now_s - self._stalls_s > _ALONE_MAX_S:
            # What company costs has not been seen for long: try it again.
            self._stalls = []
        target_s = None if config.engine_policies else positive(signals.itl_target_s)
        cap_s = None if target_s is None else config.cap_ratio * target_s
        wanted, reason = self._wanted(signals, cap_s, proven)
        wanted, reason = self._within_memory(wanted, reason)
        alone = limit == 1 and not self._stalls
        settled = proven or alone or cap_s is None or not self._latency.fit.good
        self._limit, change = self._moved(wanted, signals, settled)
        bounded = self._bounded
        self._bound_prefill(signals, cap_s)
        if self._limit == 1 < limit and not proven:
            # From here on none is in company: what it cost is known from before.
            self._stalls = self._latency.stalls(self._changed_s) or self._stalls
            self._stalls_s = now_s
        if self._limit != limit:
            self._due_s = now_s + config.period_s
            self._changed_s = now_s
        elif self._bounded and not bounded:
            self._changed_s = now_s
        self._peak = signals.in_flight
        return LimitDecision(self._limit, f"{reason}: {change}", self._prefill_tokens_max)

    def _wanted(
        self, signals: LimitSignals, cap_s: float | None, proven: bool
    ) -> tuple[float, str]:
        """Where latency and throughput want the limit to be, whatever it is now."""
        latency, ceiling = self._latency, self._bounds.ceiling(signals)
        fit = latency.fit
        few = fit.samples < _FEEDBACK_SAMPLES
        if cap_s is None:
            # By the fit more requests never yield fewer tokens; and where they yield no more, a
            # lower limit would only make them wait longer for their first token.
            kept = self._config.engine_policies
            return ceiling, "the engine keeps the ITL target" if kept else "no ITL target"
        if fit.error_ratio is None or (few and not fit.good):
            return self._limit, f"{fit.samples} requests ended, too few to go by"
        if not fit.good:
            reached = self._peak >= self._limit
            wanted, why = self._gradient.next(self._limit, reached=reached, cap_s=cap_s)
            return wanted, f"step time errs by {fit.error_ratio:.0%}; {why}"
        if latency.recent < _RECENT_MIN:
            return self._limit, f"{latency.recent} requests ended lately"
        return self._within_cap(cap_s, ceiling, proven)

    def _within_cap(self, cap_s: float, ceiling: int, proven: bool) -> tuple[float, str]:
        latency, stalls = self._latency, self._stalls
        stall_s = stalls[int(self._config.attained_ratio * (len(stalls) - 1))] if stalls else 0.0
        most = latency.most_within(cap_s, stall_s, ceiling)
        told = f"+ stall {stall_s * 1e3:.3g} ms, cap {cap_s * 1e3:.3g} ms"
        if not most:
            most = latency.best_attained(cap_s, stalls, ceiling)
            told += ", met by some at best"
        plain = max(1, latency.most_within(cap_s, 0.0, ceiling))
        if not most:
            # Not one gap would be in time. Fewer requests would cost throughput and gain nothing
            # but what the mean step still can.
            most = plain
            told += ", met by none: the mean is kept within it"
        # Stalls may become shorter with the limit: what they ask for is come to by halves, each
        # of which has to be seen first.
        floor = min(plain, self._limit // 2 if proven else self._limit)
        if most < floor:
            most = floor
            told += ", by halves"
        return most, f"step {latency.step_s(most) * 1e3:.3g} ms at {most} {told}"

    def _within_memory(self, wanted: float, reason: str) -> tuple[float, str]:
        fits = self._memory.bound()
        if fits is not None and not self._memory.above_mark:
            fits = max(fits, self._limit)  # It ends growth; only a cache that is full cuts.
        if fits is None or fits >= wanted:
            return wanted, reason
        usage = self._memory.usage_ratio
        return fits, f"{self._memory.running} requests fill {usage:.0%} of the KV cache"

    def _moved(self, wanted: float, signals: LimitSignals, settled: bool) -> tuple[int, str]:
        """The limit after a bounded move toward what is wanted, and what to call it."""
        limit = self._limit
        target = self._bounds.clamp(wanted, signals)
        reach = _REACH * self._latency.running_seen
        if abs(target - limit) <= _DEADBAND_RATIO * limit:
            return limit, f"held at {limit}"
        if target < limit:
            # The fit is only to be trusted near what was seen; memory and feedback always are.
            if target > reach and not self._memory.above_mark and self._peak < limit:
                return limit, f"held at {limit}, at most {self._peak} in flight"
            return target, f"cut to {target}"
        if self._peak < limit:
            return limit, f"held at {limit}, at most {self._peak} in flight"
        if self._memory.lost:
            return limit, f"held at {limit}, KV usage unknown"
        if not settled:
            return limit, f"held at {limit} until its stalls are known"
        # Half the way: what is short of the target has shorter stalls, and overshoots otherwise.
        halfway = limit + math.ceil((target - limit) / 2)
        target = self._bounds.clamp(min(halfway, 2 * limit, max(limit, reach)), signals)
        return target, f"{'grown to' if target > limit else 'held at'} {target}"

    def _bound_prefill(self, signals: LimitSignals, cap_s: float | None) -> None:
        """The least prefill in flight that keeps up with demand, at most what the cap allows."""
        latency, limit = self._latency, self._limit
        if cap_s is None or not latency.fit.good:
            self._prefill_tokens_max, self._bounded = None, False
            return
        self._bounded = True
        if latency.recent < _RECENT_MIN:
            return  # The mix of long ago still says more than one of a request or two.
        cap_tokens = latency.prefill_within(cap_s, limit)
        demand = latency.prefill_tokens_ratio * limit / max(latency.step_s(limit), 1e-9)
        ttft_s = positive(signals.ttft_target_s)
        if ttft_s is not None:
            demand = max(demand, signals.waiting * latency.prompt_tokens / ttft_s)
        needed = latency.prefill_for(_PREFILL_MARGIN * demand, limit)
        self._slacken(signals, cap_s)
        tokens = max(latency.prompt_tokens, min(needed, cap_tokens)) * self._slack
        self._prefill_tokens_max = math.ceil(tokens) if tokens < math.inf else None

    def _slacken(self, signals: LimitSignals, cap_s: float) -> None:
        """Loosen the bound while it starves the engine although gaps are short: the fit is off."""
        stall_s = self._stalls[-1] if self._stalls else 0.0
        gap_s = self._latency.step_s(max(1.0, self._peak)) + stall_s
        starved = signals.waiting > 0 and self._peak < self._limit
        if starved and gap_s <= _SLACK_GAP_RATIO * cap_s:
            self._slack = min(_SLACK_MAX, self._slack * _SLACK_STEP)
        elif gap_s > cap_s:
            self._slack = max(1.0, self._slack / _SLACK_STEP)
