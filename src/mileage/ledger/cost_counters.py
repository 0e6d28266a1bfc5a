"""CostCounters: totals of GPU time that only grow, out of roll-ups that are read anew each time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mileage.ledger.bill_sums import UseSums
from mileage.ledger.calendar import HOUR_S
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["CostCounters"]

SERIES_MAX: Final = 1000
"""Pairs of a tenant and a model that are told apart; later ones are `other`."""
_OTHER: Final = ("other", "other")
_KINDS: Final = ("prefill", "decode", "recomputed", "failed")

UsedBy = dict[tuple[str, str, str], int]
"""GPU-nanoseconds by tenant, model and what they were for."""
ThereBy = dict[tuple[str, str], int]
"""GPU-nanoseconds by replica and state: up, idle (a part of up) and warmup."""


class CostCounters:
    """Hours that are over and settled are added once and never read again; so reading stays cheap,
    and a total never falls, also where rows of such an hour change later.

    Read the rows of all hours from `open_hour_utc_s` on, and give them to `take`.
    """

    def __init__(self, hour_at_utc_s: int) -> None:
        self.open_hour_utc_s = hour_at_utc_s
        self._used: UsedBy = {}
        self._there: ThereBy = {}
        self._pairs: set[tuple[str, str]] = set()

    def take(
        self,
        usage: Iterable[UsageRow],
        capacity: Iterable[CapacityRow],
        settled_utc_s: float | None,
    ) -> tuple[UsedBy, ThereBy]:
        """The totals with these rows; what ended before `settled_utc_s` has its final share."""
        closing_s = self.open_hour_utc_s
        if settled_utc_s is not None:
            closing_s = max(closing_s, int(settled_utc_s) // HOUR_S * HOUR_S)
        now_used, now_there = dict(self._used), dict(self._there)
        for row in usage:
            if not row.gpu_ns:
                continue
            pair = self._pair(row)
            sums = UseSums()
            sums.add_row(row, None)
            for kind in _KINDS:
                key = (*pair, kind)
                gpu_ns: int = getattr(sums, f"{kind}_ns")
                now_used[key] = now_used.get(key, 0) + gpu_ns
                if row.hour_at_utc_s < closing_s:
                    self._used[key] = self._used.get(key, 0) + gpu_ns
        for there in capacity:
            for state, gpu_ns in (
                ("up", there.capacity_ns - there.warmup_ns),
                ("idle", there.idle_ns),
                ("warmup", there.warmup_ns),
            ):
                at = (there.replica, state)
                now_there[at] = now_there.get(at, 0) + gpu_ns
                if there.hour_at_utc_s < closing_s:
                    self._there[at] = self._there.get(at, 0) + gpu_ns
        self.open_hour_utc_s = closing_s
        return now_used, now_there

    def _pair(self, row: UsageRow) -> tuple[str, str]:
        pair = (row.tenant, row.model)
        if pair not in self._pairs:
            if len(self._pairs) >= SERIES_MAX:
                return _OTHER
            self._pairs.add(pair)
        return pair
