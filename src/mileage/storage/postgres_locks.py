"""Advisory locks of a ledger in PostgreSQL: what only one gateway does at a time."""

from __future__ import annotations

from typing import Final

from mileage.storage.postgres_connection import PostgresConnection

__all__ = ["BOOKS", "BUDGETS", "LEADER", "SCHEMA", "lock_for_session", "lock_for_transaction"]

_KIND: Final = 0x4D494C45
# Several ledgers may be in one database, each in a schema of its own.
_KEY: Final = f"{_KIND}, hashtext(current_schema()) # CAST(? AS integer)"

SCHEMA: Final = 1
"""Changes the schema."""
BOOKS: Final = 2
"""Changes what bills rest on."""
LEADER: Final = 3
"""Shares GPU time out, and deletes what is too old."""
BUDGETS: Final = 4
"""Grants parts of budgets."""


def lock_for_transaction(connection: PostgresConnection, lock: int) -> None:
    """Wait for the lock, and hold it up to the end of the transaction."""
    connection.execute(f"SELECT pg_advisory_xact_lock({_KEY})", (lock,))


def lock_for_session(connection: PostgresConnection, lock: int) -> bool:
    """Take the lock, to be held as long as the connection lives; False where another has it."""
    row = connection.execute(f"SELECT pg_try_advisory_lock({_KEY})", (lock,)).fetchone()
    return bool(row[0])
