"""SqliteStore: the ledger's database of requests, one row per request, written in batches."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mileage.core.errors import LedgerError
from mileage.storage.migrations import migrate
from mileage.storage.record import (
    BRIEF_FIELDS,
    CHARGED_FIELDS,
    FINISH_FIELDS,
    NAMED_FIELDS,
    BriefRow,
    ChargedRow,
    DetailedRow,
    NamedRow,
)

__all__ = [
    "DATABASE_NAME",
    "GATEWAY_SHIFT",
    "InsertCounts",
    "RowBatch",
    "SqliteStore",
    "full_rows",
    "ledger_errors",
    "may_pass",
    "storable_rows",
]

DATABASE_NAME: Final = "ledger.sqlite"
"""File name of the database in the ledger directory."""

GATEWAY_SHIFT: Final = 57
"""Ids that gateways make are below 2^57 until the year 2041. In a database of several gateways the
number of the one that made it stands above."""

Row: TypeAlias = tuple[Any, ...]

_REQUIRED: Final = (
    *range(FINISH_FIELDS.index("replica")),
    FINISH_FIELDS.index("attempts"),
)
_PASSING_CODES: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY}
_PASSING_ERRNOS: Final = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE}
_NO_DETAIL: Final = (None,) * (len(FINISH_FIELDS) - len(NAMED_FIELDS))
_LOOKUP_ROWS: Final = 500
_ROWS_AT_ONCE: Final = 50
"""Between so many rows (0.3 ms) another process may have the core: where it is the data plane's
too, its requests would else wait for a time slice, some milliseconds, four times a second."""


def _insert(fields: Sequence[str]) -> str:
    marks = ", ".join("?" * len(fields))
    return f"INSERT OR IGNORE INTO requests ({', '.join(fields)}) VALUES ({marks})"  # noqa: S608


_INSERT_BRIEF: Final = _insert(FINISH_FIELDS[:BRIEF_FIELDS])
# Fewer values to bind than all of them: this is what most requests without a stream are.
_INSERT_CHARGED: Final = _insert(CHARGED_FIELDS)
_INSERT_NAMED: Final = _insert(NAMED_FIELDS)
_INSERT_DETAILED: Final = _insert(FINISH_FIELDS)
_INSERTS: Final = (_INSERT_BRIEF, _INSERT_CHARGED, _INSERT_NAMED, _INSERT_DETAILED)


class RowBatch(msgspec.Struct):
    """Rows to store together. `lost` rows only fill gaps: what is stored of a request stays."""

    brief: list[BriefRow] = []
    detailed: list[DetailedRow] = []
    lost: list[BriefRow] = []
    charged: list[ChargedRow] = []
    named: list[NamedRow] = []

    def __len__(self) -> int:
        return len(self.lost) + sum(map(len, self.ends()))

    def ends(self) -> tuple[Sequence[Row], ...]:
        """The rows of each kind that are ends of requests, as they were told."""
        return (self.brief, self.charged, self.named, self.detailed)


class InsertCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch. Every row is in exactly one of the counts, save known `lost` ones."""

    inserted: int = 0
    """Ends of requests that were not stored before."""
    lost: int = 0
    """Rows with the outcome `lost` that were not stored before."""
    repeated: int = 0
    """Rows that were stored already, the same."""
    conflicting: int = 0
    """Rows whose id was stored already with other values; the stored ones stay."""
    refused: int = 0
    """Rows that the database cannot hold (a number beyond 64 bits where one is needed)."""


@contextmanager
def ledger_errors(path: str) -> Iterator[None]:
    """Turn every error of sqlite3 into a LedgerError that names the database.

    A damaged one may give text that is not UTF-8, or no number where there should be one.
    """
    try:
        yield
    except (sqlite3.Error, ValueError) as error:
        raise LedgerError(path, str(error)) from error


def may_pass(error: LedgerError) -> bool:
    """Whether the same may work later without anyone repairing the database: a full disk, say."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _PASSING_CODES
    return isinstance(cause, OSError) and cause.errno in _PASSING_ERRNOS


class SqliteStore:
    """The writing side: one connection, WAL, one transaction per batch. For one thread at a time.

    synchronous=NORMAL: a commit survives the death of the process; `sync` makes what was committed
    survive a power cut as well. Every method raises LedgerError, naming the file; a
    failed batch leaves nothing behind and can be tried again.
    """

    shared: Final = None
    """One gateway has the file for itself."""

    def __init__(self, path: str | Path) -> None:
        """Open the database, make it (0600) where missing, and bring its schema up to date."""
        self.path = str(path)
        try:
            # Only a new file may be opened here: closing any descriptor of a database releases
            # the locks that other connections of this process hold on it.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(self.path, f"cannot make it: {error.strerror}") from error
        with ledger_errors(self.path):
            self._connection = sqlite3.connect(
                self.path, timeout=5.0, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA journal_size_limit = 67108864")
                migrate(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the connection; twice is fine."""
        with ledger_errors(self.path):
            self._connection.close()

    def insert(self, batch: RowBatch) -> InsertCounts:
        """Store the batch in one transaction; all of it or, with a LedgerError, nothing."""
        try:
            return self._insert(batch, 0)
        except OverflowError:
            storable, refused = storable_rows(batch, _storable_value)
            return self._insert(storable, refused)

    def sync(self) -> None:
        """Make all commits so far survive a power cut."""
        wal = f"{self.path}-wal"
        try:
            fd = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return  # nothing was committed since the last checkpoint, which synced the database
        except OSError as error:
            raise LedgerError(wal, f"cannot sync: {error.strerror}") from error

    def _insert(self, batch: RowBatch, refused: int) -> InsertCounts:
        with self.transaction() as connection:
            inserted = lost = conflicting = 0
            for statement, rows in zip(_INSERTS, batch.ends(), strict=True):
                inserted += _store(connection, statement, rows)
            if batch.lost:
                lost = _store(connection, _INSERT_BRIEF, batch.lost)
            repeated = len(batch) - len(batch.lost) - inserted
            if repeated:
                conflicting = self._conflicting(full_rows(batch))
        return InsertCounts(
            inserted=inserted,
            lost=lost,
            repeated=repeated - conflicting,
            conflicting=conflicting,
            refused=refused,
        )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction for more than inserting: committed at the end, or all of it undone."""
        with ledger_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have rolled it back already
                    self._connection.execute("ROLLBACK")
                raise

    def _conflicting(self, rows: Sequence[Row]) -> int:
        """How many of the rows differ from what is stored under their id."""
        conflicting = 0
        for start in range(0, len(rows), _LOOKUP_ROWS):
            some = rows[start : start + _LOOKUP_ROWS]
            marks = ", ".join("?" * len(some))
            fields = ", ".join(FINISH_FIELDS)
            cursor = self._connection.execute(
                f"SELECT {fields} FROM requests WHERE id IN ({marks})",  # noqa: S608
                [row[0] for row in some],
            )
            stored = {row[0]: row for row in cursor}
            conflicting += sum(stored.get(row[0]) != row for row in some)
        return conflicting


def _store(connection: sqlite3.Connection, statement: str, rows: Sequence[Row]) -> int:
    """Store rows, some at a time; how many there were not yet."""
    stored = 0
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        stored += connection.executemany(statement, rows[start : start + _ROWS_AT_ONCE]).rowcount
        os.sched_yield()
    return stored


def _full(row: Row) -> Row:
    return row + (None,) * (len(FINISH_FIELDS) - len(row))


def _full_of_short(row: Row) -> Row:
    """All fields of a row of CHARGED_FIELDS or NAMED_FIELDS."""
    return _full(row[:BRIEF_FIELDS] + _NO_DETAIL + row[BRIEF_FIELDS:])


def full_rows(batch: RowBatch) -> list[Row]:
    """The ends of the batch with all of FINISH_FIELDS."""
    short = map(_full_of_short, [*batch.charged, *batch.named])
    return [*map(_full, batch.brief), *short, *batch.detailed]


def storable_rows(batch: RowBatch, storable: Callable[[Any], Any]) -> tuple[RowBatch, int]:
    """The batch with values that the database can hold, as `storable` makes them (None: it cannot
    hold it), and how many rows that left out."""
    refused = 0
    kept: list[list[Any]] = []
    for rows in (batch.brief, batch.detailed, batch.lost, batch.charged, batch.named):
        clean = [tuple(map(storable, row)) for row in rows]
        kept.append([row for row in clean if not any(row[i] is None for i in _REQUIRED)])
        refused += len(clean) - len(kept[-1])
    return RowBatch(*kept), refused


def _storable_value(value: Any) -> Any:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return None
    return value
