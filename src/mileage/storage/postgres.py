"""PostgresStore: the ledger's database of several gateways; what SqliteStore is for one."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from mileage.core.errors import LedgerError
from mileage.storage.connection import Connection
from mileage.storage.postgres_address import display_address
from mileage.storage.postgres_connection import (
    PostgresConnection,
    connect,
    out_of_reach,
    postgres_errors,
)
from mileage.storage.postgres_gateways import PostgresGateways
from mileage.storage.postgres_locks import BOOKS, lock_for_transaction
from mileage.storage.postgres_migrations import migrate_postgres
from mileage.storage.record import FINISH_FIELDS
from mileage.storage.sqlite import (
    GATEWAY_SHIFT,
    InsertCounts,
    RowBatch,
    full_rows,
    storable_rows,
)

__all__ = ["PostgresStore"]

_MERGED: Final = FINISH_FIELDS.index("merged_into")
_STREAM: Final = FINISH_FIELDS.index("stream")
_FIELDS: Final = ", ".join(FINISH_FIELDS)
_INCOMING: Final = (
    f"CREATE TEMP TABLE IF NOT EXISTS incoming ON COMMIT DELETE ROWS AS SELECT {_FIELDS} "  # noqa: S608
    "FROM requests LIMIT 0"
)
_COPY: Final = f"COPY incoming ({_FIELDS}) FROM STDIN"
_MOVE: Final = (
    f"INSERT INTO requests ({_FIELDS}) SELECT {_FIELDS} FROM incoming "  # noqa: S608
    "ON CONFLICT (id) DO NOTHING"
)
_STORED: Final = f"SELECT {_FIELDS} FROM requests WHERE id = ANY(%s)"  # noqa: S608

Row = tuple[Any, ...]
_log = logging.getLogger(__name__)


class PostgresStore:
    """The writing side of one gateway, known to the others by `identity`.

    Two gateways can make the same request id in the same microsecond. So each has a number of its
    own while it lives, and here an id is the gateway's with that number above it.

    Where the database cannot be reached the store is made all the same, and each method tries
    anew: the log keeps the records meanwhile. LedgerError for what will not pass by itself: a
    schema of a newer Mileage, say. For one thread at a time.
    """

    def __init__(self, address: str, *, identity: str) -> None:
        self.path = display_address(address)
        self._address = address
        self._connection: PostgresConnection | None = None
        self.shared = PostgresGateways(self._use, identity)
        try:
            self._use()
        except LedgerError as error:
            if not out_of_reach(error):
                raise
            _log.error("the ledger's database cannot be reached: %s", error)

    def close(self) -> None:
        """Close the connection; twice is fine."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def sync(self) -> None:
        """Nothing is left to do: a commit survives a power cut where `synchronous_commit` is on,
        which is the default."""

    def insert(self, batch: RowBatch) -> InsertCounts:
        """Store the batch in one transaction; all of it or, with a LedgerError, nothing."""
        try:
            return self._insert(batch, 0)
        except LedgerError as error:
            if not _unstorable(error.__cause__):
                raise
        except UnicodeError:
            pass
        clean, refused = storable_rows(batch, _storable_value)
        return self._insert(clean, refused)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that changes what bills rest on: one of all gateways' at a time."""
        connection = self._use()
        with _transaction(connection):
            lock_for_transaction(connection, BOOKS)
            yield connection

    def _insert(self, batch: RowBatch, refused: int) -> InsertCounts:
        connection = self._use()
        number = self.shared.number(connection)
        ends = _with_number(full_rows(batch), number)
        lost = _with_number(full_rows(RowBatch(brief=batch.lost)), number)
        refused += len(batch) - len(ends) - len(lost)
        with _transaction(connection):
            inserted = _store(connection, ends)
            lost_inserted = _store(connection, lost)
            repeated = len(ends) - inserted
            conflicting = _conflicting(connection, ends) if repeated else 0
        return InsertCounts(
            inserted=inserted,
            lost=lost_inserted,
            repeated=repeated - conflicting,
            conflicting=conflicting,
            refused=refused,
        )

    def _use(self) -> PostgresConnection:
        """The connection, made anew where it was lost."""
        connection = self._connection
        if connection is not None and connection.alive:
            return connection
        self._connection = None
        connection = connect(self._address)
        try:
            migrate_postgres(connection)
            connection.execute(_INCOMING)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


@contextmanager
def _transaction(connection: PostgresConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(LedgerError):  # the server undoes what nobody is left to commit
            connection.execute("ROLLBACK")
        raise


def _store(connection: PostgresConnection, rows: Sequence[Row]) -> int:
    """Store rows; how many there were not yet."""
    if not rows:
        return 0
    with postgres_errors(connection.path):
        cursor = connection.raw.cursor()
        with cursor.copy(_COPY.encode()) as copy:
            for row in rows:
                copy.write_row(row)
        os.sched_yield()
        stored = cursor.execute(_MOVE.encode()).rowcount
        cursor.execute(b"TRUNCATE incoming")
    return stored


def _conflicting(connection: PostgresConnection, rows: Sequence[Row]) -> int:
    """How many of the rows differ from what is stored under their id."""
    with postgres_errors(connection.path):
        cursor = connection.raw.execute(_STORED.encode(), ([row[0] for row in rows],))
        stored = {row[0]: row for row in cursor}
    return sum(stored.get(row[0]) != row for row in rows)


def _with_number(rows: Sequence[Row], number: int) -> list[Row]:
    """The rows as they are stored: ids with the gateway's number, without ids that are none."""
    above, beyond = number << GATEWAY_SHIFT, 1 << GATEWAY_SHIFT
    return [
        (
            row[0] | above,
            *row[1:_STREAM],
            int(row[_STREAM]),
            *row[_STREAM + 1 : _MERGED],
            None if row[_MERGED] is None else row[_MERGED] | above,
            *row[_MERGED + 1 :],
        )
        for row in rows
        if 0 <= row[0] < beyond
    ]


def _unstorable(cause: object) -> bool:
    import psycopg

    return isinstance(cause, psycopg.DataError)


def _storable_value(value: Any) -> Any:
    """Texts have neither NUL nor halves of characters here."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return None
    return value
