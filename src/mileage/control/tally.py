"""Tally: what became of the requests of a journal, as it was or as it would have been."""

from __future__ import annotations

from collections import Counter

import msgspec

from mileage.core.actions import Action, Dispatch, Hold, Join, Reject, SetLimit
from mileage.measure.quantiles import quantile

__all__ = ["LimitRange", "Tally", "TallySummary"]

_WAITS_MAX = 1_000_000


class LimitRange(msgspec.Struct, kw_only=True):
    """The limits of one replica: how they began, went and ended; `mean` is over time."""

    first: int
    last: int
    low: int
    high: int
    changes: int
    mean: float


class TallySummary(msgspec.Struct, frozen=True, kw_only=True):
    """`sent` are requests that went to a replica, `waited` those of them that were held first;
    `waiting` are held at the end."""

    arrived: int
    sent: int
    held: int
    joined: int
    rejected: dict[str, int]
    waited: int
    waiting: int
    wait_p50_s: float | None
    wait_p99_s: float | None
    wait_max_s: float | None
    limits: dict[str, LimitRange]


class _Limit:
    """The limits of one replica so far."""

    __slots__ = ("area", "first", "high", "last", "low", "since_s", "start_s", "times")

    def __init__(self, limit: int, now_s: float) -> None:
        self.first = self.last = self.low = self.high = limit
        self.start_s = self.since_s = now_s
        self.area = 0.0
        self.times = 0

    def set(self, limit: int, now_s: float) -> None:
        """It changes."""
        self.area += self.last * (now_s - self.since_s)
        self.since_s, self.last = now_s, limit
        self.low, self.high = min(self.low, limit), max(self.high, limit)
        self.times += 1

    def range(self, now_s: float) -> LimitRange:
        """What it was until now."""
        passed_s = now_s - self.start_s
        area = self.area + self.last * (now_s - self.since_s)
        return LimitRange(
            first=self.first,
            last=self.last,
            low=self.low,
            high=self.high,
            changes=self.times,
            mean=area / passed_s if passed_s > 0 else float(self.last),
        )


class Tally:
    """Counts actions. A request that is sent again after a failure counts once."""

    def __init__(self) -> None:
        self.arrived = 0
        self._sent: set[int] = set()
        self._held: dict[int, float] = {}
        self._counts: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._waits_s: list[float] = []
        self._limits: dict[str, _Limit] = {}
        self._now_s = 0.0

    def did(self, action: Action, now_s: float) -> None:
        """Count one action."""
        self._now_s = now_s
        kind = type(action)
        if kind is Dispatch:
            assert isinstance(action, Dispatch)
            self._dispatched(action.request_id, now_s)
        elif isinstance(action, Hold):
            self._held[action.request_id] = now_s
            self._counts["held"] += 1
        elif isinstance(action, Join):
            self._held.pop(action.request_id, None)
            self._counts["joined"] += 1
        elif isinstance(action, Reject):
            self.gone(action.request_id)
            self._rejected[action.reason] += 1
        elif isinstance(action, SetLimit):
            known = self._limits.get(action.replica)
            if known is None:
                self._limits[action.replica] = _Limit(action.limit, now_s)
            elif known.last != action.limit:
                known.set(action.limit, now_s)

    def gone(self, request_id: int) -> None:
        """The request has ended: its id may be forgotten."""
        self._held.pop(request_id, None)
        self._sent.discard(request_id)

    def summary(self) -> TallySummary:
        """All so far."""
        waits_s = self._waits_s
        return TallySummary(
            arrived=self.arrived,
            sent=self._counts["sent"],
            held=self._counts["held"],
            joined=self._counts["joined"],
            rejected=dict(sorted(self._rejected.items())),
            waited=self._counts["waited"],
            waiting=len(self._held),
            wait_p50_s=quantile(waits_s, 0.5),
            wait_p99_s=quantile(waits_s, 0.99),
            wait_max_s=max(waits_s, default=None),
            limits={name: limit.range(self._now_s) for name, limit in self._limits.items()},
        )

    def _dispatched(self, request_id: int, now_s: float) -> None:
        held_s = self._held.pop(request_id, None)
        if request_id in self._sent:
            return
        self._sent.add(request_id)
        self._counts["sent"] += 1
        if held_s is not None:
            self._counts["waited"] += 1
            if len(self._waits_s) < _WAITS_MAX:
                self._waits_s.append(now_s - held_s)
