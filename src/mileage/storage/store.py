"""LedgerStore: what a feeder needs of the ledger's database, and what gateways share of it."""

from __future__ import annotations

from typing import Protocol

from mileage.storage.connection import Transactions
from mileage.storage.sqlite import InsertCounts, RowBatch

__all__ = ["LedgerStore", "SharedLedger"]


class SharedLedger(Protocol):
    """A database that several gateways write to."""

    def lead(self) -> int | None:
        """The number of this gateway's turn, if it is the one that shares GPU time out and deletes
        what is old; None while another one does. Another turn: others may have done it in between.
        """
        ...

    def report(self, fed_until_utc_ns: int, since_utc_ns: int) -> int:
        """Tell the others up to when all that was dispatched here is stored, and hear how far all
        of them are; one that has not got to `since_utc_ns` is not waited for."""
        ...

    def settled_until_utc_ns(self) -> int | None:
        """How far GPU time is shared out, by whichever gateway."""
        ...

    def end(self) -> None:
        """All records of this gateway are stored, and there will be no more."""
        ...


class LedgerStore(Transactions, Protocol):
    """The writing side of a ledger. For one thread at a time; every method raises LedgerError."""

    @property
    def shared(self) -> SharedLedger | None:
        """None where one gateway has the database for itself."""
        ...

    def insert(self, batch: RowBatch, /) -> InsertCounts:
        """Store the batch in one transaction; all of it or nothing."""
        ...

    def sync(self) -> None:
        """Make all commits so far survive a power cut."""
        ...

    def close(self) -> None:
        """Close it; twice is fine."""
        ...
