"""Verifies the books: that roll-ups, requests and the GPU time there was are the same sums."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.storage.connection import Connection
from mileage.storage.replica_times import stretch_of
from mileage.storage.request_rows import NS_PER_S
from mileage.storage.request_sums import REPLICA, REQUEST_SUMS
from mileage.storage.usage_schema import CAPACITY_COLUMNS, USAGE_COLUMNS, USAGE_TEXTS
from mileage.storage.window_books import HOUR_S

__all__ = ["UsageVerdict", "verify_usage"]

PROBLEMS_MAX: Final = 20
"""Sentences of one kind; those beyond are told as a number."""


class UsageVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and how much was looked at."""

    problems: list[str]
    """Sentences for people; empty: every sum is proven."""
    hours: int
    """Hours of a replica whose usage, idle and warm-up time is its capacity."""
    hours_by_minute: int
    """Of these: compared with their minutes, which are still kept."""
    accounts: int
    """Pairs of replica and tenant whose requests have the sums of the roll-ups."""
    requests: int
    """Requests that were added up for it."""
    requests_open: int
    """Requests that are not booked yet: they ran after what is settled, or came late."""
    gpu_ns: int
    """GPU time that is shared out in all."""


def verify_usage(connection: Connection) -> UsageVerdict:
    """Check every sum of the ledger, on one state of it. Raises the database's errors.

    1. Hour by hour and replica: usage + idle + warm-up = capacity, to the nanosecond.
    2. The minutes of an hour, where they are kept, are the hour in every column.
    3. Capacity is what the replica's states on record give.
    4. Hour by hour and replica: the GPU time of the requests that are there, where none is deleted.
    5. By replica and tenant: requests that are there, and what those deleted had, are the sum of
       all hours: GPU time, requests and tokens.
    6. No part is larger than its whole.
    Reads all of the requests.
    """
    connection.execute("BEGIN")
    try:
        problems = [
            *_capped("hours do not add up", _unbalanced_hours(connection)),
            *_capped("hours are not their minutes", _unlike_minutes(connection)),
            *_capped("hours are not what was seen of their replica", _unseen(connection)),
            *_capped("hours are not their requests", _unlike_their_requests(connection)),
            *_capped("accounts are not their requests", _unlike_requests(connection)),
            *_capped("hours have parts larger than the whole", _large_parts(connection)),
        ]
        counts = {name: _count(connection, sql) for name, sql in _COUNTS.items()}
    finally:
        connection.execute("ROLLBACK")
    return UsageVerdict(problems=problems, **counts)


_COUNTS: Final = {
    "hours": "SELECT count(*) FROM capacity_hours",
    "hours_by_minute": f"SELECT count(*) FROM (SELECT DISTINCT minute_at_utc_s / {HOUR_S}, replica "  # noqa: S608
    "FROM capacity_minutes)",
    "accounts": "SELECT count(*) FROM (SELECT DISTINCT replica, tenant FROM usage_hours)",
    "requests": "SELECT count(*) FROM requests WHERE booked > 0",
    "requests_open": "SELECT count(*) FROM requests WHERE booked < 2",
    "gpu_ns": "SELECT coalesce(sum(gpu_ns), 0) FROM usage_hours",
}


_KEPT: Final = "coalesce((SELECT utc_ns FROM kept_since WHERE kind = '{}'), 0)"


def _count(connection: Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])


def _capped(what: str, sentences: list[str]) -> list[str]:
    if len(sentences) <= PROBLEMS_MAX:
        return sentences
    return [*sentences[:PROBLEMS_MAX], f"{len(sentences) - PROBLEMS_MAX} more {what}"]


def _unbalanced_hours(connection: Connection) -> list[str]:
    rows = connection.execute(
        """
        SELECT hour, replica, sum(given), sum(capacity) FROM (
            SELECT hour_at_utc_s AS hour, replica, gpu_ns AS given, 0 AS capacity FROM usage_hours
            UNION ALL
            SELECT hour_at_utc_s, replica, idle_ns + warmup_ns, capacity_ns FROM capacity_hours
        ) GROUP BY hour, replica HAVING sum(given) != sum(capacity) ORDER BY hour, replica
        """
    )
    return [
        f"{_at(hour)}, replica {replica!r}: usage, idle and warm-up time are {given} ns of a "
        f"capacity of {capacity} ns"
        for hour, replica, given, capacity in rows
    ]


def _unlike_minutes(connection: Connection) -> list[str]:
    found = []
    for kind, texts, columns in (
        ("usage", USAGE_TEXTS, (*USAGE_COLUMNS, "coalesce(charged_nano_usd, 0)")),
        ("capacity", ("replica",), CAPACITY_COLUMNS),
    ):
        plus = ", ".join(f"{column} AS c{i}" for i, column in enumerate(columns))
        minus = ", ".join(f"-{column}" for column in columns)
        sums = [f"sum(c{i})" for i in range(len(columns))]
        names = ", ".join(texts)
        rows = connection.execute(
            f"""
            SELECT hour, {names}, {", ".join(sums)} FROM (
                SELECT hour_at_utc_s AS hour, {names}, {plus} FROM {kind}_hours
                WHERE hour_at_utc_s IN
                (SELECT minute_at_utc_s / {HOUR_S} * {HOUR_S} FROM {kind}_minutes)
                UNION ALL
                SELECT minute_at_utc_s / {HOUR_S} * {HOUR_S}, {names}, {minus} FROM {kind}_minutes
            ) GROUP BY hour, {names} HAVING {" OR ".join(f"{total} != 0" for total in sums)}
            ORDER BY hour, {names}
            """  # noqa: S608
        )
        for hour, *values in rows:
            off = zip(columns, values[len(texts) :], strict=True)
            names_off = ", ".join(f"{name} by {value}" for name, value in off if value)
            found.append(
                f"{_at(hour)}, {'/'.join(values[: len(texts)])}: the hour differs from its "
                f"minutes: {names_off}"
            )
    return found


def _unseen(connection: Connection) -> list[str]:
    """A fraction of a GPU makes each window round: then a nanosecond per second may be off."""
    rows = connection.execute(
        f"""
        SELECT hour_at_utc_s, replica, capacity_ns, observed_ns, coalesce(until_utc_ns, 0)
        FROM capacity_hours AS h LEFT JOIN settled USING (replica)
        WHERE hour_at_utc_s * {NS_PER_S} >= {_KEPT.format("replica_time")}
        ORDER BY hour_at_utc_s, replica
        """  # noqa: S608
    ).fetchall()
    found = []
    for hour, replica, capacity_ns, observed_ns, until_ns in rows:
        end_ns = max(hour * NS_PER_S, min((hour + HOUR_S) * NS_PER_S, until_ns))
        seen = stretch_of(connection, replica, hour * NS_PER_S, end_ns)
        off_ns = abs(seen.up_ns * seen.gpus - capacity_ns)
        if seen.observed_ns != observed_ns or off_ns > _rounding_ns(seen.gpus):
            found.append(
                f"{_at(hour)}, replica {replica!r}: a capacity of {capacity_ns} ns in "
                f"{observed_ns} ns is booked, and {round(seen.up_ns * seen.gpus)} ns in "
                f"{seen.observed_ns} ns on record"
            )
    return found


def _rounding_ns(gpus: float) -> float:
    return 0.5 if gpus.is_integer() else HOUR_S


def _unlike_their_requests(connection: Connection) -> list[str]:
    """What requests had in the hour of their arrival is what they had in none later."""
    rows = connection.execute(
        f"""
        SELECT hour, replica, sum(own), sum(booked) FROM (
            SELECT arrived_at_utc_ns / {HOUR_S * NS_PER_S} * {HOUR_S} AS hour,
                {REPLICA} AS replica, attributed_ns AS own, 0 AS booked
            FROM requests WHERE attributed_ns IS NOT NULL
            UNION ALL
            SELECT arrived_at_utc_ns / {HOUR_S * NS_PER_S} * {HOUR_S}, h.replica, -h.gpu_ns, 0
            FROM request_hours AS h JOIN requests AS r ON r.id = h.request_id
            UNION ALL
            SELECT hour_at_utc_s, replica, gpu_ns, 0 FROM request_hours
            UNION ALL
            SELECT hour_at_utc_s, replica, 0, gpu_ns FROM usage_hours WHERE tenant != ''
        ) WHERE hour * {NS_PER_S} >= {_KEPT.format("requests")}
        GROUP BY hour, replica HAVING sum(own) != sum(booked) ORDER BY hour, replica
        """  # noqa: S608
    )
    return [
        f"{_at(hour)}, replica {replica!r}: requests had {own} ns, and {booked} ns are booked"
        for hour, replica, own, booked in rows
    ]


def _unlike_requests(connection: Connection) -> list[str]:
    names = tuple(REQUEST_SUMS)
    booked: dict[tuple[str, str], list[int]] = {}
    told: dict[tuple[str, str], list[int]] = {}
    sources: tuple[tuple[str, dict[tuple[str, str], list[int]]], ...] = (
        (
            f"SELECT replica, tenant, {', '.join(f'sum({name})' for name in names)} "  # noqa: S608
            "FROM usage_hours WHERE tenant != '' GROUP BY replica, tenant",
            booked,
        ),
        (f"SELECT replica, tenant, {', '.join(names)} FROM retired", told),  # noqa: S608
        (
            f"SELECT {REPLICA}, tenant, {', '.join(REQUEST_SUMS.values())} "  # noqa: S608
            f"FROM requests WHERE booked > 0 GROUP BY {REPLICA}, tenant",
            told,
        ),
    )
    for sql, into in sources:
        for replica, tenant, *sums in connection.execute(sql):
            known = into.setdefault((replica, tenant), [0] * len(names))
            into[replica, tenant] = [a + b for a, b in zip(known, sums, strict=True)]
    none = [0] * len(names)
    found = []
    for account in sorted(booked.keys() | told.keys()):
        pairs = zip(names, booked.get(account, none), told.get(account, none), strict=True)
        off = [
            f"{name} {hours} and {requests}" for name, hours, requests in pairs if hours != requests
        ]
        if off:
            replica, tenant = account
            found.append(
                f"tenant {tenant!r} on replica {replica!r}: hours and requests differ: "
                + ", ".join(off)
            )
    return found


def _large_parts(connection: Connection) -> list[str]:
    parts = {
        "requests_failed": "requests",
        "prefill_ns": "gpu_ns",
        "recomputed_ns": "prefill_ns",
        "failed_ns": "gpu_ns",
        "saturated_ns": "gpu_ns",
        "low_ns": "gpu_ns",
        "gpu_ns": "high_ns",
    }
    rows: list[tuple[Any, ...]] = []
    for part, whole in parts.items():
        rows += connection.execute(
            f"SELECT hour_at_utc_s, tenant, replica, ? FROM usage_hours "  # noqa: S608
            f"WHERE {part} > {whole} OR {part} < 0",
            (f"{part} is more than {whole}, or negative",),
        ).fetchall()
    return [
        f"{_at(hour)}, tenant {tenant!r} on replica {replica!r}: {what}"
        for hour, tenant, replica, what in rows
    ]


def _at(hour_at_utc_s: int) -> str:
    return f"hour {hour_at_utc_s} (UTC)"
