"""A governor without a controller: limits, a queue and decisions that follow the pressure."""

from __future__ import annotations

from random import Random

from mileage.control.config import GovernorMode
from mileage.control.decisions import Decision, Decisions
from mileage.control.governor_state import GovernorState
from mileage.core.actions import RejectReason
from mileage.core.slo import SloConfig
from mileage.gateway.messages import GovernorReport

__all__ = ["SyntheticGovernor"]

_REASONS: tuple[tuple[RejectReason, str], ...] = (
    ("deadline", "its first token would come in 0.83 s; the target is 0.5 s"),
    ("rate_limited", "120 requests/min; 121 in the last minute"),
    ("budget_exhausted", "50 USD per day are spent; more in 7 h"),
)


class SyntheticGovernor:
    """One worker's part; `failure` and `mode` are what it is told to be in."""

    def __init__(self, slo: SloConfig, mode: GovernorMode, limit: int = 64) -> None:
        self.slo, self.mode = slo, mode
        self.failure: str | None = None
        self.limits: dict[str, int] = {}
        self.waiting: dict[str, int] = {}
        self.policy_failed: set[str] = set()
        self.decisions = Decisions()
        self._limit = limit
        self._held_total = self._would = 0

    def govern(self, replica: str, pressure: float, now_s: float, random: Random) -> None:
        """Decide the replica's limit, and hold what the pressure is too much for."""
        before = self.limits.setdefault(replica, self._limit)
        waiting = max(0, round((pressure - 0.75) * 40 + random.gauss(0, 1)))
        if self.mode == "observe":
            self._would += waiting
            waiting = 0
        self._held_total += waiting
        self.waiting[replica] = waiting
        if random.random() > 0.08:
            return
        step = random.choice((-4, -2, 1)) if pressure > 0.55 else 2
        limit = max(40, min(self._limit, before + step))
        if limit != before:
            self.limits[replica] = limit
            word = "raised" if limit > before else "lowered"
            reason = f"step {19 + 0.4 * before:.3g} ms at {limit} + stall 8.2 ms, cap 45 ms: {word}"
            self.decisions.add(
                Decision(at_s=now_s, kind="limit", subject=replica, reason=reason, limit=limit)
            )

    def refuse(self, tenant: str, now_s: float, random: Random) -> RejectReason:
        """Refuse a request for some reason."""
        reason, detail = random.choice(_REASONS)
        self.decisions.refused(tenant, reason, detail, now_s)
        return reason

    def report(self, tenants: tuple[str, ...]) -> GovernorReport:
        """What the worker tells of it."""
        held = sum(self.waiting.values())
        return GovernorReport(
            slo=self.slo,
            failure=self.failure,
            state=GovernorState(
                mode=self.mode,
                policy="model",
                held=held,
                held_by_tenant={tenants[0]: held} if held and tenants else {},
                held_total=self._held_total,
                refused_total={},
                would_hold_total=self._would,
                would_refuse_total=self._would // 4,
                waiting=dict(self.waiting),
                decisions=self.decisions.latest()[-60:],
            ),
        )
