"""Rows: usage and capacity of a window, in spans that are as long as one price holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from mileage.cli.cost_window import Window
from mileage.ledger.calendar import period_bounds
from mileage.ledger.usage_row import CapacityRow, UsageRow
from mileage.storage.provisional import Tail
from mileage.storage.usage_reader import UsageReader
from mileage.storage.usage_schema import USAGE_TEXTS

__all__ = ["Rows", "read_days", "read_rows", "with_tail"]

_SUMS = ("capacity_ns", "idle_ns", "warmup_ns")


@dataclass(frozen=True, slots=True)
class Rows:
    """False where there are none. `settled_until_utc_s`: up to there all is booked; what is known
    of the time after it is in `tail`, and in the rows where they were read `with_tail`."""

    usage: list[UsageRow]
    capacity: list[CapacityRow]
    settled_until_utc_s: int | None
    tail: Tail | None = None

    def __bool__(self) -> bool:
        return bool(self.usage or self.capacity)

    def hours(self) -> set[int]:
        """The hours, or the first hours of spans, of which there is a row."""
        return {r.hour_at_utc_s for r in self.usage} | {r.hour_at_utc_s for r in self.capacity}


def read_rows(source: UsageReader, window: Window, texts: Sequence[str] = USAGE_TEXTS) -> Rows:
    """What is booked of the window, hour by hour, of texts only these. Raises LedgerError."""
    since, until = window.since_utc_s, window.until_utc_s
    return Rows(
        list(source.usage(since, until, by=texts)),
        list(source.capacity(since, until)),
        source.settled_until_utc_s(),
    )


def read_days(source: UsageReader, window: Window, texts: Sequence[str]) -> Rows:
    """The same, with the hours of each local day as one, and of texts only these: far fewer rows.

    Prices hold for whole days. A day in which a replica had other GPUs than before is read hour by
    hour. Rows are as of the first second of their span. Raises LedgerError.
    """
    usage: list[UsageRow] = []
    capacity: list[CapacityRow] = []
    at, end = window.since_utc_s, window.until_utc_s
    first = source.first_hour_utc_s()
    while first is not None and at < end:
        until = min(end, period_bounds(at, "day", window.zone)[1])
        if until > first:
            there = list(source.capacity(at, until))
            if _alike(there):
                usage += source.usage(at, until, by=texts, as_of_utc_s=at)
                capacity += _as_one(there, at)
            else:
                usage += source.usage(at, until, by=texts)
                capacity += there
        at = until
    return Rows(usage, capacity, source.settled_until_utc_s())


def with_tail(source: UsageReader, rows: Rows, window: Window) -> Rows:
    """The rows, and what is known of the time that is not settled yet. Raises LedgerError."""
    settled = rows.settled_until_utc_s
    if settled is not None and settled >= window.until_utc_s:
        return rows
    tail = source.provisional(window.since_utc_s, window.until_utc_s)
    return Rows(rows.usage + tail.usage, rows.capacity + tail.capacity, settled, tail)


def _alike(capacity: Iterable[CapacityRow]) -> bool:
    """Whether each replica had the same GPUs all the time."""
    cards: dict[str, tuple[str, float]] = {}
    return all(
        cards.setdefault(row.replica, (row.gpu, row.gpus)) == (row.gpu, row.gpus)
        for row in capacity
    )


def _as_one(capacity: Iterable[CapacityRow], at_utc_s: int) -> list[CapacityRow]:
    sums: dict[str, CapacityRow] = {}
    for row in capacity:
        known = sums.get(row.replica)
        added = {
            name: getattr(row, name) + (0 if known is None else getattr(known, name))
            for name in _SUMS
        }
        sums[row.replica] = msgspec.structs.replace(row, hour_at_utc_s=at_utc_s, **added)
    return list(sums.values())
