"""Retention: deletes what is too old of everything that is not kept for ever, bit by bit."""

from __future__ import annotations

from typing import Final

from mileage.storage.connection import Transactions
from mileage.storage.request_rows import NS_PER_S
from mileage.storage.request_sums import REPLICA, REQUEST_SUMS
from mileage.storage.window_books import HOUR_S, hour_of

__all__ = ["RETENTION_ROWS", "Retention"]

RETENTION_ROWS: Final = 1000
"""Requests deleted in one step: a short transaction, so that feeding goes on in between."""

_OLDEST: Final = """
    SELECT id FROM requests INDEXED BY requests_by_arrival
    WHERE arrived_at_utc_ns < ? AND booked >= {booked_min}
    ORDER BY arrived_at_utc_ns, id LIMIT {rows}
"""
_RETIRE: Final = (
    f"INSERT INTO retired (replica, tenant, {', '.join(REQUEST_SUMS)}) "  # noqa: S608
    f"SELECT {REPLICA}, tenant, {', '.join(REQUEST_SUMS.values())} FROM requests "
    f"WHERE id IN ({{oldest}}) GROUP BY {REPLICA}, tenant HAVING max(booked) > 0 "
    "ON CONFLICT (replica, tenant) DO UPDATE SET "
    f"{', '.join(f'{name} = retired.{name} + excluded.{name}' for name in REQUEST_SUMS)}"
)
_KEPT: Final = (
    "INSERT INTO kept_since VALUES (?1, ?2) ON CONFLICT (kind) DO UPDATE "
    "SET utc_ns = max(kept_since.utc_ns, excluded.utc_ns)"
)
_SETTLED: Final = "SELECT until_utc_ns FROM settled WHERE replica = ''"
_ORPHANS: Final = (
    "DELETE FROM engine_requests WHERE ended_at_utc_ns < ? "
    "AND NOT EXISTS (SELECT 1 FROM requests WHERE id = request_id)"
)
"""What engines told of requests whose own record never came."""
_MINUTES: Final = ("usage_minutes", "capacity_minutes", "gpu_minutes")


class Retention:
    """Deletes from one database; hourly roll-ups and what they rest on as sums are never deleted.

    `booked_only`: requests that the attribution has not booked stay, however old they are. What
    deleted ones had is added up, so that requests and roll-ups can be compared for ever.
    """

    def __init__(self, store: Transactions, *, booked_only: bool) -> None:
        self._store, self._booked_only = store, booked_only
        oldest = _OLDEST.format(booked_min=2 if booked_only else 0, rows=RETENTION_ROWS)
        self._retire = _RETIRE.format(oldest=oldest)
        self._newest = f"SELECT max(arrived_at_utc_ns) FROM requests WHERE id IN ({oldest})"  # noqa: S608
        self._delete = f"DELETE FROM requests WHERE id IN ({oldest})"  # noqa: S608
        self._delete_told = f"DELETE FROM engine_requests WHERE request_id IN ({oldest})"  # noqa: S608

    def step(self, before_utc_ns: int) -> bool:
        """Delete some of what is older; True if there may be more. Raises LedgerError."""
        with self._store.transaction() as connection:
            newest_ns = connection.execute(self._newest, (before_utc_ns,)).fetchone()[0]
            if newest_ns is not None:
                connection.execute(_KEPT, ("requests", newest_ns + 1))
            connection.execute(self._retire, (before_utc_ns,))
            connection.execute(self._delete_told, (before_utc_ns,))
            deleted = connection.execute(self._delete, (before_utc_ns,)).rowcount
        if deleted == RETENTION_ROWS:
            return True
        return self._delete_rest(before_utc_ns)

    def _delete_rest(self, before_utc_ns: int) -> bool:
        """Delete what requests and replicas left, an hour at once: one that is there is whole."""
        more = False
        with self._store.transaction() as connection:
            if self._booked_only:
                settled = connection.execute(_SETTLED).fetchone()
                before_utc_ns = min(before_utc_ns, 0 if settled is None else settled[0])
            hour = hour_of(before_utc_ns // NS_PER_S)
            for table in _MINUTES:
                oldest = connection.execute(
                    f"SELECT min(minute_at_utc_s) FROM {table}"  # noqa: S608
                ).fetchone()[0]
                if oldest is not None and oldest < hour:
                    before_s = hour_of(oldest) + HOUR_S
                    connection.execute(
                        f"DELETE FROM {table} WHERE minute_at_utc_s < ?",  # noqa: S608
                        (before_s,),
                    )
                    connection.execute(_KEPT, ("minutes", before_s * NS_PER_S))
                    more = True
            hour_ns = hour * NS_PER_S
            connection.execute("DELETE FROM request_hours WHERE hour_at_utc_s < ?", (hour,))
            connection.execute(_ORPHANS, (hour_ns,))
            sql = "DELETE FROM replica_time WHERE until_utc_ns <= ?"
            if connection.execute(sql, (hour_ns,)).rowcount:
                connection.execute(_KEPT, ("replica_time", hour_ns))
        return more
