"""HourSeries: what each account used and what it cost, hour by hour."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from mileage.ledger.account_name import UNATTRIBUTED, WARM_UP, AccountNames
from mileage.ledger.bill_cells import cells_of
from mileage.ledger.calendar import HOUR_S
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["IDLE", "TOTAL", "HourSeries", "hour_series"]

IDLE = "(idle)"
TOTAL = "(total)"


class HourSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the hours in `hours_at_utc_s`, in order: those of which the ledger knows anything.

    `nano_usd` is None where some hour has no price. An hour of which nothing is known is absent; an
    hour in which only others did something is 0.
    """

    name: str
    hours_at_utc_s: tuple[int, ...]
    gpu_ns: tuple[int, ...]
    nano_usd: tuple[int, ...] | None

    def until(self, end_utc_s: int) -> HourSeries:
        """The hours that end by then."""
        count = bisect_right(self.hours_at_utc_s, end_utc_s - HOUR_S)
        return HourSeries(
            name=self.name,
            hours_at_utc_s=self.hours_at_utc_s[:count],
            gpu_ns=self.gpu_ns[:count],
            nano_usd=None if self.nano_usd is None else self.nano_usd[:count],
        )


def hour_series(
    usage: Iterable[UsageRow],
    capacity: Iterable[CapacityRow],
    names: AccountNames,
    book: PriceBook,
) -> dict[str, HourSeries]:
    """By account, with those of idle and warm-up time, and the total of them all as TOTAL."""
    gpu_ns: dict[str, dict[int, int]] = {TOTAL: {}}
    nano_usd: dict[str, dict[int, int]] = {TOTAL: {}}
    unpriced: set[str] = set()
    hours: list[int] = []
    for cell in cells_of(usage, capacity, book):
        at = cell.hour_at_utc_s
        if not hours or hours[-1] != at:
            hours.append(at)
        parts = [(names.of(row), row.gpu_ns) for row in cell.rows]
        parts += [
            (IDLE, cell.idle_ns),
            (WARM_UP, cell.warmup_ns),
            (UNATTRIBUTED, cell.unattributed_ns),
        ]
        for (name, part_ns), cost in zip(parts, cell.nano_usd, strict=True):
            for account in (name, TOTAL):
                of = gpu_ns.setdefault(account, {})
                of[at] = of.get(at, 0) + part_ns
                if cost is None:
                    if part_ns:
                        unpriced.add(account)
                    continue
                money = nano_usd.setdefault(account, {})
                money[at] = money.get(at, 0) + cost
    return {
        name: HourSeries(
            name=name,
            hours_at_utc_s=tuple(hours),
            gpu_ns=tuple(values.get(hour, 0) for hour in hours),
            nano_usd=None
            if name in unpriced
            else tuple(nano_usd.get(name, {}).get(hour, 0) for hour in hours),
        )
        for name, values in gpu_ns.items()
        if name in (TOTAL, IDLE) or any(values.values())
    }
