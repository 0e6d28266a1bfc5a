"""Connection: what the ledger needs of a database, be it SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["Connection", "Cursor", "Transactions"]


class Cursor(Protocol):
    """Rows of a statement; as sqlite3.Cursor."""

    @property
    def rowcount(self) -> int:
        """Rows that the statement changed."""
        ...

    def fetchone(self) -> Any:
        """The next row, None after the last."""
        ...

    def fetchmany(self, size: int, /) -> list[Any]:
        """The next rows, at most `size`."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """As sqlite3.Connection; statements are in SQLite's dialect, as far as both can be told it."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Run it once for each of the parameters; `rowcount` is the sum."""
        ...

    def close(self) -> None:
        """Close it; twice is fine."""
        ...


class Transactions(Protocol):
    """A database in which one at a time changes more than a row of requests."""

    @property
    def path(self) -> str:
        """Its name in messages."""
        ...

    def transaction(self) -> AbstractContextManager[Connection]:
        """Committed at the end, or all of it undone; LedgerError where it cannot be."""
        ...
