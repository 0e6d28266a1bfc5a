"""The history in a ledger: its requests, the states of replicas, the minutes of GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from mileage.cli.config import Config, journal_directory
from mileage.cli.doctor_rca_admin import AdminRecord
from mileage.cli.doctor_rca_journal import journal_events
from mileage.doctor.rca.events import Event, replica_events
from mileage.doctor.rca.ledger_history import LedgerHistory, step_for
from mileage.doctor.rca.series import History, Series
from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.gpu_minutes import GpuMinute, read_gpu_minutes
from mileage.storage.open_ledger import open_ledger
from mileage.storage.queries import LedgerReader, RequestFilter
from mileage.storage.sqlite import ledger_errors

__all__ = ["Searched", "ledger_history"]

_NS: Final = 1_000_000_000
_REQUESTS_MAX: Final = 1_000_000
_GPU_FIELDS: Final = (
    "gpu_util_ratio",
    "sm_active_ratio",
    "memory_used_bytes",
    "power_w",
    "sm_clock_hz",
    "temperature_c",
)


class Searched(NamedTuple):
    """The time that is searched, and where the time before it begins."""

    before_utc_s: float
    since_utc_s: float
    until_utc_s: float


def ledger_history(
    place: Path | str, config: Config, times: Searched, admin: AdminRecord | None
) -> History:
    """The history of that time. Raises LedgerError."""
    reader = LedgerReader(place)
    try:
        searched = _count(reader, times.since_utc_s)
        every = _count(reader, times.before_utc_s)
        before_utc_s, notes = times.before_utc_s, []
        if every > max(_REQUESTS_MAX, searched):
            # As much of the past as a million requests are, evenly spread; a day's course is in it
            # or not known.
            share = max(0.0, (_REQUESTS_MAX - searched) / (every - searched))
            before_utc_s = times.since_utc_s - share * (times.since_utc_s - before_utc_s)
            hours = (times.since_utc_s - before_utc_s) / 3600
            notes.append(f"{every} requests: only {hours:.1f} hours before were looked at")
        step_s = step_for(times.until_utc_s - times.since_utc_s, searched)
        start_utc_s = math.floor(before_utc_s / step_s) * step_s
        rows = LedgerHistory(start_utc_s, times.until_utc_s, step_s)
        for request in reader.by_arrival(RequestFilter(since_utc_ns=round(start_utc_s * _NS))):
            if request.arrived_at_utc_ns >= times.until_utc_s * _NS:
                break
            rows.add(request)
    finally:
        reader.close()
    if not rows.requests:
        return History(
            start_utc_s=start_utc_s, step_s=step_s, series=(), since_utc_s=times.since_utc_s
        )
    events, more = journal_events(journal_directory(config.journal), start_utc_s)
    events += replica_events(_replica_times(place, start_utc_s, times.until_utc_s))
    if admin is not None:
        events += _new(admin.events, events)
    gpus = read_gpu_minutes(place, int(start_utc_s), int(times.until_utc_s), _GPU_FIELDS)
    points = math.floor((times.until_utc_s - start_utc_s) / step_s)
    return rows.history(
        since_utc_s=times.since_utc_s,
        series=_gpu_series(gpus, start_utc_s, step_s, points),
        events=[each for each in events if start_utc_s <= each.at_utc_s < times.until_utc_s],
        links=admin.links if admin is not None else (),
        notes=[*notes, *more],
    )


def _count(reader: LedgerReader, since_utc_s: float) -> int:
    where = RequestFilter(since_utc_ns=round(since_utc_s * _NS))
    return sum(each.requests for each in reader.counts(where))


def _new(told: Iterable[Event], known: Iterable[Event]) -> list[Event]:
    """Events of the admin plane that the journal does not tell too."""
    seen = {(each.kind, each.version) for each in known if each.kind == "config"}
    return [each for each in told if (each.kind, each.version) not in seen]


def _replica_times(place: Path | str, since_utc_s: float, until_utc_s: float) -> list[ReplicaTime]:
    path, connection = open_ledger(place)
    fields = ", ".join(ReplicaTime.__struct_fields__)
    sql = (
        f"SELECT {fields} FROM replica_time "  # noqa: S608
        "WHERE until_utc_ns > ? AND from_utc_ns < ? ORDER BY replica, from_utc_ns"
    )
    try:
        with ledger_errors(path):
            rows = connection.execute(sql, (round(since_utc_s * _NS), round(until_utc_s * _NS)))
            return [ReplicaTime(*row) for row in rows]
    finally:
        connection.close()


def _gpu_series(
    minutes: Iterable[GpuMinute], start_utc_s: float, step_s: float, points: int
) -> list[Series]:
    """Means of minutes on the grid; a minute is every point in it."""
    sums: dict[tuple[str, str], dict[int, tuple[float, int]]] = {}
    per_minute = max(1, math.ceil(60 / step_s))
    for each in minutes:
        column = sums.setdefault((f"gpu:{each.host}/{each.gpu}", each.field), {})
        first = math.floor((each.minute_at_utc_s - start_utc_s) / step_s)
        for place in range(first, first + per_minute):
            total, count = column.get(place, (0.0, 0))
            column[place] = total + each.mean, count + 1
    found = []
    for (node, name), column in sorted(sums.items()):
        values = tuple(
            column[place][0] / column[place][1] if place in column else None
            for place in range(points)
        )
        found.append(Series(node=node, name=name, values=values))
    return found
