"""PostgresBudgets: the parts of budgets that gateways hold, in a table that they share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from mileage.control.budget_pool import PartGrant, PartReport, PoolPart, exchange
from mileage.core.errors import LedgerError
from mileage.storage.postgres_connection import PostgresConnection, connect
from mileage.storage.postgres_locks import BUDGETS, lock_for_transaction

__all__ = ["AWAY_S", "PostgresBudgets"]

AWAY_S: Final = 10.0
"""A gateway that was not heard of for so long is not waited for; what it holds stays its own."""
_KEPT_S: Final = 86_400
"""Windows that ended longer ago are deleted: no clock falls back so far."""
_STATEMENT_S: Final = 5

_NOW_S: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
_READ: Final = (
    "SELECT account, period, gateway, granted, spent, wanted, place, seen_at_utc_s "
    "FROM budget_parts WHERE account = ANY(?) ORDER BY account, period, gateway"
)
_WRITE: Final = """
    INSERT INTO budget_parts (account, period, gateway, ends_at_utc_s, granted, spent, wanted,
    place, seen_at_utc_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (account, period, gateway) DO UPDATE SET granted = excluded.granted,
    spent = excluded.spent, wanted = excluded.wanted, place = excluded.place,
    seen_at_utc_s = excluded.seen_at_utc_s
"""

_Parts = dict[tuple[str, int], dict[str, PoolPart]]


class PostgresBudgets:
    """One gateway's way to the pool of all; over a connection of its own. One call at a time."""

    def __init__(self, address: str, *, identity: str) -> None:
        self._address, self._identity = address, identity
        self._connection: PostgresConnection | None = None
        self._cleaned_at_s = 0.0

    def close(self) -> None:
        """Close the connection; twice is fine."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def exchange(self, reports: Sequence[PartReport]) -> list[PartGrant]:
        """Tell the pool, and hear its answers, one for each; raises LedgerError: then it may have
        heard all the same, and the next call puts that right.

        One transaction, of one gateway at a time: what is granted to one is seen by the next.
        """
        connection = self._use()
        connection.execute("BEGIN")
        try:
            lock_for_transaction(connection, BUDGETS)
            now_s = float(connection.execute(_NOW_S).fetchone()[0])
            parts = self._read(connection, sorted({r.account for r in reports}), now_s)
            grants = []
            for report in reports:
                pool = parts.setdefault((report.account, report.window), {})
                pool.setdefault(self._identity, PoolPart())
                grants.append(exchange(pool, self._identity, report))
            self._write(connection, reports, parts, now_s)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(LedgerError):  # the server undoes what nobody is left to commit
                connection.execute("ROLLBACK")
            raise
        return grants

    def _read(self, connection: PostgresConnection, accounts: list[str], now_s: float) -> _Parts:
        parts: _Parts = {}
        for account, window, gateway, granted, spent, wanted, place, seen_s in connection.execute(
            _READ, (accounts,)
        ):
            parts.setdefault((account, window), {})[gateway] = PoolPart(
                granted, spent, wanted, place, seen_s > now_s - AWAY_S
            )
        return parts

    def _write(
        self,
        connection: PostgresConnection,
        reports: Sequence[PartReport],
        parts: _Parts,
        now_s: float,
    ) -> None:
        rows = []
        for report in reports:
            part = parts[report.account, report.window][self._identity]
            figures = (part.granted, part.spent, part.wanted, part.place, now_s)
            key = (report.account, report.window, self._identity)
            rows.append((*key, report.ends_utc_s, *figures))
        connection.executemany(_WRITE, rows)
        if now_s > self._cleaned_at_s + _KEPT_S / 24:
            self._cleaned_at_s = now_s
            connection.execute(
                "DELETE FROM budget_parts WHERE ends_at_utc_s < ?", (int(now_s) - _KEPT_S,)
            )

    def _use(self) -> PostgresConnection:
        """The connection, made anew where it was lost. The store brings the schema."""
        if self._connection is None or not self._connection.alive:
            self._connection = None
            self._connection = connect(self._address, statement_s=_STATEMENT_S)
        return self._connection
