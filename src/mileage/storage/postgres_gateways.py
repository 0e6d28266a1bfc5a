"""PostgresGateways: the gateways of one database: their numbers, how far they are, who leads."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from mileage.core.errors import LedgerError
from mileage.storage.postgres_connection import PostgresConnection
from mileage.storage.postgres_locks import LEADER, SCHEMA, lock_for_session, lock_for_transaction

__all__ = ["AWAY_S", "NUMBERS", "PostgresGateways"]

NUMBERS: Final = 64
"""Gateways that one database can have at a time."""
AWAY_S: Final = 86_400
"""A gateway that was not seen for so long may lose its number to a new one, if no other is free."""

_NOW_NS: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000000 AS bigint)"
_MINE: Final = "SELECT number FROM gateways WHERE identity = ?"
_TAKEN: Final = "SELECT number, ended, seen_at_utc_ns FROM gateways ORDER BY seen_at_utc_ns, number"
_TAKE: Final = f"""
    INSERT INTO gateways (number, identity, host, since_utc_ns, seen_at_utc_ns)
    VALUES (?, ?, ?, {_NOW_NS}, {_NOW_NS})
"""  # noqa: S608
_BACK: Final = f"""
    UPDATE gateways SET host = ?, ended = 0, seen_at_utc_ns = {_NOW_NS},
    fed_until_utc_ns = CASE WHEN ended = 0 THEN fed_until_utc_ns END WHERE identity = ?
"""  # noqa: S608
_REPORT: Final = f"""
    UPDATE gateways SET fed_until_utc_ns = ?, seen_at_utc_ns = {_NOW_NS}
    WHERE number = ? AND identity = ?
"""  # noqa: S608
_SLOWEST: Final = """
    SELECT min(fed_until_utc_ns) FROM gateways
    WHERE ended = 0 AND identity != ? AND fed_until_utc_ns >= ?
"""
_SETTLED: Final = "SELECT until_utc_ns FROM settled WHERE replica = ''"


class PostgresGateways:
    """Satisfies SharedLedger over one connection, which `use` gives, made anew where it was lost.

    The leader has a lock that lives as long as its connection, on which it does all that only the
    leader may: where that breaks, nothing it began can be committed any more, and another one gets
    the lock.
    """

    def __init__(self, use: Callable[[], PostgresConnection], identity: str) -> None:
        self._use, self._identity = use, identity
        self._known: tuple[PostgresConnection, int] | None = None
        self._leading: PostgresConnection | None = None
        self._turn = 0

    def number(self, connection: PostgresConnection) -> int:
        """This gateway's number, taken where it has none."""
        if self._known is None or self._known[0] is not connection:
            self._known = (connection, self._take(connection))
        return self._known[1]

    def lead(self) -> int | None:
        """See SharedLedger."""
        connection = self._use()
        if self._leading is not connection:
            self._leading = None
            if not lock_for_session(connection, LEADER):
                return None
            self._leading = connection
            self._turn += 1
        return self._turn

    def report(self, fed_until_utc_ns: int, since_utc_ns: int) -> int:
        """See SharedLedger."""
        connection = self._use()
        values = (fed_until_utc_ns, self.number(connection), self._identity)
        if not connection.execute(_REPORT, values).rowcount:
            self._known = None  # it was away so long that another one got its number
            self.number(connection)
        slowest = connection.execute(_SLOWEST, (self._identity, since_utc_ns)).fetchone()[0]
        return fed_until_utc_ns if slowest is None else min(fed_until_utc_ns, int(slowest))

    def settled_until_utc_ns(self) -> int | None:
        """See SharedLedger."""
        row = self._use().execute(_SETTLED).fetchone()
        return None if row is None else int(row[0])

    def end(self) -> None:
        """See SharedLedger."""
        self._use().execute("UPDATE gateways SET ended = 1 WHERE identity = ?", (self._identity,))

    def _take(self, connection: PostgresConnection) -> int:
        connection.execute("BEGIN")
        try:
            lock_for_transaction(connection, SCHEMA)
            mine = connection.execute(_MINE, (self._identity,)).fetchone()
            if mine is None:
                number = self._free(connection)
                connection.execute("DELETE FROM gateways WHERE number = ?", (number,))
                connection.execute(_TAKE, (number, self._identity, socket.gethostname()))
            else:
                number = int(mine[0])
                connection.execute(_BACK, (socket.gethostname(), self._identity))
            connection.execute("COMMIT")
        except BaseException:
            if connection.alive:
                connection.execute("ROLLBACK")
            raise
        return number

    def _free(self, connection: PostgresConnection) -> int:
        """A number that nobody has had; else of one that ended, or was away longest."""
        rows = connection.execute(_TAKEN).fetchall()
        unused = set(range(NUMBERS)) - {int(row[0]) for row in rows}
        if unused:
            return min(unused)
        now_ns = int(connection.execute(f"SELECT {_NOW_NS}").fetchone()[0])
        for number, ended, seen_at_utc_ns in rows:
            if ended or seen_at_utc_ns < now_ns - AWAY_S * 1_000_000_000:
                return int(number)
        raise LedgerError(
            connection.path, f"has {NUMBERS} gateways already, all of them seen within a day"
        )
