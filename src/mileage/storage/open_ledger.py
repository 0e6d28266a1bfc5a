"""Opens a ledger's database for reading, beside a gateway that may be writing to it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from mileage.core.errors import LedgerError
from mileage.storage.connection import Connection
from mileage.storage.migrations import MIGRATIONS, NO_LEDGER, is_foreign, schema_version
from mileage.storage.postgres_connection import connect
from mileage.storage.postgres_migrations import postgres_version
from mileage.storage.sqlite import DATABASE_NAME, ledger_errors

__all__ = ["is_address", "open_ledger"]

_READING_S = 600


def is_address(ledger: str | Path) -> bool:
    """Whether it is a database of several gateways, and no directory."""
    return isinstance(ledger, str) and ledger.startswith(("postgresql://", "postgres://"))


def open_ledger(ledger: str | Path) -> tuple[str, Connection]:
    """The path of the database, and a connection that cannot write.

    `ledger`: its directory, or the address of a database that several gateways share. Raises
    LedgerError where there is none, and where its schema is not that of this program.
    """
    if is_address(ledger):
        return _open_shared(str(ledger))
    path = Path(ledger) / DATABASE_NAME
    name = str(path)
    if not path.exists():
        raise LedgerError(name, "no ledger here: no such file")
    with ledger_errors(name):
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro{_untouched(path)}",
            uri=True,
            timeout=5.0,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if is_foreign(connection):
                raise LedgerError(name, NO_LEDGER)
            _check(name, schema_version(connection))
        except BaseException:
            connection.close()
            raise
    return name, connection


def _untouched(path: Path) -> str:
    """More of the URI, for a copy that stands alone in a directory that is not ours to write to:
    SQLite would make a file beside it. One that a gateway writes to has its -wal there."""
    beside = path.with_name(f"{path.name}-wal")
    return "" if beside.exists() or os.access(path.parent, os.W_OK) else "&immutable=1"


def _open_shared(address: str) -> tuple[str, Connection]:
    connection = connect(address, statement_s=_READING_S)
    try:
        connection.execute("SET default_transaction_read_only = on")
        # What is read within one transaction is of one moment, as with SQLite.
        connection.execute("SET default_transaction_isolation = 'repeatable read'")
        _check(connection.path, postgres_version(connection))
    except BaseException:
        connection.close()
        raise
    return connection.path, connection


def _check(name: str, version: int) -> None:
    newest = MIGRATIONS[-1].version
    if version != newest:
        remedy = "use a newer Mileage" if version > newest else "run mileage serve on it once"
        raise LedgerError(
            name, f"its schema has version {version}, this program reads {newest}: {remedy}"
        )
