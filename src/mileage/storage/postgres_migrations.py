"""Migrations in PostgreSQL: those of SQLite by the same numbers, and tables that gateways share."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from mileage.core.errors import LedgerError
from mileage.storage.migrations import MIGRATIONS, Migration
from mileage.storage.postgres_connection import PostgresConnection
from mileage.storage.postgres_dialect import postgres_schema
from mileage.storage.postgres_locks import SCHEMA, lock_for_transaction

__all__ = ["POSTGRES_MIGRATIONS", "migrate_postgres", "postgres_version"]

_SHARED: Final[dict[int, tuple[str, ...]]] = {
    4: (
        """
        CREATE TABLE gateways (
            number INTEGER PRIMARY KEY,
            identity TEXT NOT NULL UNIQUE,
            host TEXT NOT NULL,
            since_utc_ns INTEGER NOT NULL,
            seen_at_utc_ns INTEGER NOT NULL,
            fed_until_utc_ns INTEGER,
            ended INTEGER NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE budget_parts (
            account TEXT NOT NULL,
            period INTEGER NOT NULL,
            gateway TEXT NOT NULL,
            ends_at_utc_s INTEGER NOT NULL,
            granted INTEGER NOT NULL,
            spent INTEGER NOT NULL,
            wanted INTEGER NOT NULL,
            place INTEGER NOT NULL,
            seen_at_utc_s REAL NOT NULL,
            PRIMARY KEY (account, period, gateway)
        )
        """,
    ),
}
"""By version: what only a database of several gateways has."""

POSTGRES_MIGRATIONS: Final = tuple(
    Migration(
        one.version,
        tuple(map(postgres_schema, (*one.statements, *_SHARED.get(one.version, ())))),
    )
    for one in MIGRATIONS
)


def postgres_version(connection: PostgresConnection) -> int:
    """The version of the schema; 0 where there is none."""
    if connection.execute("SELECT to_regclass('schema_version')").fetchone()[0] is None:
        return 0
    found = connection.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    return int(found or 0)


def migrate_postgres(
    connection: PostgresConnection, migrations: tuple[Migration, ...] = POSTGRES_MIGRATIONS
) -> int:
    """Bring the schema to the latest version, all steps in one transaction; return how many.

    Of several gateways that start, one does it. Raises LedgerError for a schema that is newer than
    this program, for one that has tables of the same names, and where a step fails: then nothing
    has changed.
    """
    newest = migrations[-1].version
    if postgres_version(connection) == newest:
        return 0
    connection.execute("BEGIN")
    try:
        lock_for_transaction(connection, SCHEMA)
        connection.execute("SET LOCAL statement_timeout = 0")  # an index over all requests
        version = postgres_version(connection)
        if version > newest:
            raise LedgerError(
                connection.path,
                f"its schema has version {version}, this program knows up to {newest}: "
                "it was written by a newer Mileage",
            )
        if (
            version == 0
            and connection.execute("SELECT to_regclass('requests')").fetchone()[0] is not None
        ):
            raise LedgerError(connection.path, "has a table `requests`, but no Mileage ledger")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(version BIGINT PRIMARY KEY, applied_at_utc TEXT NOT NULL)"
        )
        due = [migration for migration in migrations if migration.version > version]
        for migration in due:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_version VALUES (?, to_char(now() AT TIME ZONE 'UTC', "
                """'YYYY-MM-DD"T"HH24:MI:SS"Z"'))""",
                (migration.version,),
            )
        connection.execute("COMMIT")
    except BaseException:
        with suppress(LedgerError):  # undone by the server, where it cannot be reached
            connection.execute("ROLLBACK")
        raise
    return len(due)
