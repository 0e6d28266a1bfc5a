"""Migrations: the ledger database's schema, version by version."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from mileage.core.errors import LedgerError
from mileage.storage.engine_requests import ENGINE_SCHEMA
from mileage.storage.usage_schema import USAGE_SCHEMA

__all__ = ["MIGRATIONS", "NO_LEDGER", "Migration", "is_foreign", "migrate", "schema_version"]

NO_LEDGER: Final = "is an SQLite database, but not a Mileage ledger"


class Migration(msgspec.Struct, frozen=True):
    """Statements that lead from the version before to this one."""

    version: int
    statements: tuple[str, ...]


MIGRATIONS: Final = (
    Migration(
        1,
        (
            """
            CREATE TABLE requests (
                id INTEGER PRIMARY KEY,
                tenant TEXT NOT NULL,
                model TEXT NOT NULL,
                endpoint TEXT NOT NULL,
                stream INTEGER NOT NULL,
                arrived_at_utc_ns INTEGER NOT NULL,
                outcome TEXT NOT NULL,
                status INTEGER,
                replica TEXT,
                attempts INTEGER NOT NULL,
                reason TEXT,
                dispatched_s REAL,
                first_token_s REAL,
                last_token_s REAL,
                finished_s REAL,
                prompt_tokens INTEGER,
                cached_tokens INTEGER,
                output_tokens INTEGER,
                reasoning_tokens INTEGER,
                output_tokens_counted INTEGER,
                itl_mean_s REAL,
                itl_p99_s REAL,
                itl_max_s REAL,
                token_times BLOB,
                trace_id TEXT
            )
            """,
            "CREATE INDEX requests_by_arrival ON requests (arrived_at_utc_ns)",
            "CREATE INDEX requests_by_tenant ON requests (tenant, arrived_at_utc_ns)",
        ),
    ),
    Migration(
        2,
        (
            "ALTER TABLE requests ADD COLUMN merged_into INTEGER",
            "ALTER TABLE requests ADD COLUMN merged_members INTEGER",
        ),
    ),
    Migration(
        3,
        (
            "ALTER TABLE requests ADD COLUMN gpu_ns INTEGER",
            "ALTER TABLE requests ADD COLUMN cost_nano_usd INTEGER",
        ),
    ),
    Migration(4, USAGE_SCHEMA),
    Migration(5, ENGINE_SCHEMA),
)


def schema_version(connection: sqlite3.Connection) -> int:
    """The version of the database's schema; 0 for one that has none."""
    found = connection.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
    ).fetchone()[0]
    if not found:
        return 0
    return int(connection.execute("SELECT max(version) FROM schema_version").fetchone()[0] or 0)


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Whether there is something in the database, and nothing that tells a version of ours."""
    found, ours = connection.execute(
        "SELECT count(*), total(name = 'schema_version') FROM sqlite_master"
    ).fetchone()
    return bool(found) and not ours


def migrate(
    connection: sqlite3.Connection,
    path: str,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> int:
    """Bring the schema to the latest version, all steps in one transaction; return how many.

    Expects a connection in autocommit mode. Raises LedgerError for a schema that is newer than
    this program, and for a database that is none of ours; sqlite3.Error where a step fails, and
    then nothing has changed.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection)
        newest = migrations[-1].version
        if version > newest:
            raise LedgerError(
                path,
                f"its schema has version {version}, this program knows up to {newest}: "
                "it was written by a newer Mileage",
            )
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise LedgerError(path, NO_LEDGER)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(version INTEGER PRIMARY KEY, applied_at_utc TEXT NOT NULL)"
        )
        due = [migration for migration in migrations if migration.version > version]
        for migration in due:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_version VALUES (?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))",
                (migration.version,),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have rolled it back already
            connection.execute("ROLLBACK")
        raise
    return len(due)
