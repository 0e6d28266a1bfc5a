"""UsageTables: writes what windows add to the roll-ups by minute and hour, of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from mileage.storage.connection import Connection
from mileage.storage.request_rows import SHARE_FIELDS
from mileage.storage.usage_schema import CAPACITY_COLUMNS, USAGE_COLUMNS, USAGE_TEXTS
from mileage.storage.window_books import UsageKey, WindowBooks, hour_of

__all__ = ["COMBINATIONS_MAX", "MORE", "UsageTables"]

COMBINATIONS_MAX: Final = 5000
"""Rows of one hour with texts of their own; beyond, model, adapter, key and labels are MORE."""
MORE: Final = "(more)"
_HOURS_KEPT: Final = 4

Texts: TypeAlias = tuple[str, str, str, str, str, str]


def _upsert(table: str, keys: Sequence[str], sums: Sequence[str], rest: dict[str, str]) -> str:
    columns = (*keys, *sums, *rest)
    changes = [f"{name} = {table}.{name} + excluded.{name}" for name in sums]
    changes += [f"{name} = {change.format(table)}" for name, change in rest.items()]
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) "  # noqa: S608
        f"VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
    )


_CHARGED: Final = {
    "charged_nano_usd": "CASE WHEN excluded.charged_nano_usd IS NULL THEN {0}.charged_nano_usd "
    "ELSE coalesce({0}.charged_nano_usd, 0) + excluded.charged_nano_usd END"
}
_GPUS: Final = {
    "gpu": "CASE WHEN excluded.gpu = '' THEN {0}.gpu ELSE excluded.gpu END",
    "gpus": "CASE WHEN excluded.observed_ns > 0 THEN excluded.gpus ELSE {0}.gpus END",
}
_USAGE_HOURS: Final = _upsert(
    "usage_hours", ("hour_at_utc_s", *USAGE_TEXTS), USAGE_COLUMNS, _CHARGED
)
_USAGE_MINUTES: Final = _upsert(
    "usage_minutes", ("minute_at_utc_s", *USAGE_TEXTS), USAGE_COLUMNS, _CHARGED
)
_CAPACITY_HOURS: Final = _upsert(
    "capacity_hours", ("hour_at_utc_s", "replica"), CAPACITY_COLUMNS, _GPUS
)
_CAPACITY_MINUTES: Final = _upsert(
    "capacity_minutes", ("minute_at_utc_s", "replica"), CAPACITY_COLUMNS, _GPUS
)
_REQUEST: Final = (
    f"UPDATE requests SET {', '.join(f'{name} = ?' for name in SHARE_FIELDS)}, "  # noqa: S608
    "booked = ? WHERE id = ?"
)
_LATER: Final = _upsert(
    "request_hours",
    ("request_id", "hour_at_utc_s", "replica"),
    ("gpu_ns", "low_ns", "high_ns", "prefill_ns", "recomputed_ns"),
    {},
)
_TEXTS_OF_HOUR: Final = f"SELECT {', '.join(USAGE_TEXTS)} FROM usage_hours WHERE hour_at_utc_s = ?"  # noqa: S608


class UsageTables:
    """Adds books to the tables, within a transaction of the caller's.

    Labels and names of models come from clients: so that they cannot fill the disk, an hour has a
    bounded number of rows. Sums by replica and tenant are exact whatever becomes of other texts.
    """

    def __init__(self) -> None:
        self._texts: dict[int, set[Texts]] = {}

    def forget(self) -> None:
        """A transaction failed: what is known of the tables may be wrong."""
        self._texts.clear()

    def write(self, connection: Connection, books: WindowBooks) -> None:
        """Add all of it."""
        minutes: dict[UsageKey, list[int | None]] = {}
        for key, sums in books.usage.items():
            texts = self._folded(connection, hour_of(key[0]), key[1:])
            _add(minutes, (key[0], *texts), sums)
        hours: dict[UsageKey, list[int | None]] = {}
        for key, sums in minutes.items():
            _add(hours, (hour_of(key[0]), *key[1:]), sums)
        connection.executemany(_USAGE_MINUTES, _rows(minutes))
        connection.executemany(_USAGE_HOURS, _rows(hours))
        capacity: list[tuple[Any, ...]] = [
            (*place, *sums, *books.replicas.get(place, ("", 1.0)))
            for place, sums in sorted(books.capacity.items())
        ]
        connection.executemany(_CAPACITY_MINUTES, capacity)
        connection.executemany(_CAPACITY_HOURS, [(hour_of(row[0]), *row[1:]) for row in capacity])
        connection.executemany(_REQUEST, books.requests)
        connection.executemany(_LATER, books.later)

    def _folded(self, connection: Connection, hour: int, texts: Texts) -> Texts:
        """The texts under which it is booked in this hour."""
        known = self._texts.get(hour)
        if known is None:
            while len(self._texts) >= _HOURS_KEPT:
                self._texts.pop(next(iter(self._texts)))
            known = self._texts[hour] = set(connection.execute(_TEXTS_OF_HOUR, (hour,)))
        if texts in known or len(known) < COMBINATIONS_MAX:
            known.add(texts)
            return texts
        return (texts[0], texts[1], MORE, MORE, MORE, MORE)


def _add(into: dict[UsageKey, list[int | None]], key: UsageKey, sums: list[int | None]) -> None:
    known = into.get(key)
    if known is None:
        into[key] = sums
        return
    more = [(a or 0) + (b or 0) for a, b in zip(known, sums, strict=True)]
    charged = None if known[-1] is None and sums[-1] is None else more[-1]
    into[key] = [*more[:-1], charged]


def _rows(sums: dict[UsageKey, list[int | None]]) -> Iterable[tuple[Any, ...]]:
    """In the order of the tables, which are trees by key."""
    return [(*key, *values) for key, values in sorted(sums.items(), key=_first)]


def _first(item: tuple[UsageKey, list[int | None]]) -> UsageKey:
    return item[0]
