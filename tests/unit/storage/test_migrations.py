"""Migrations run in order, once, all or none; a foreign or newer database is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from mileage.core.errors import LedgerError
from mileage.ledger.usage_row import CapacityRow, UsageRow
from mileage.storage.migrations import MIGRATIONS, Migration, migrate, schema_version
from mileage.storage.record import FINISH_FIELDS

ONE = Migration(1, ("CREATE TABLE a (x INTEGER)", "INSERT INTO a VALUES (1)"))
TWO = Migration(2, ("ALTER TABLE a ADD COLUMN y INTEGER",))
BROKEN = Migration(3, ("CREATE TABLE b (x INTEGER)", "ALTER TABLE missing ADD COLUMN y INTEGER"))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def tables(connection: sqlite3.Connection) -> list[str]:
    return [n for (n,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]


def test_a_new_database_gets_every_step_and_an_old_one_the_rest(
    connection: sqlite3.Connection,
) -> None:
    assert migrate(connection, "db", (ONE,)) == 1
    assert migrate(connection, "db", (ONE, TWO)) == 1
    assert migrate(connection, "db", (ONE, TWO)) == 0
    assert schema_version(connection) == 2
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(1, None)]
    applied = connection.execute("SELECT version, applied_at_utc FROM schema_version").fetchall()
    assert [version for version, _ in applied] == [1, 2]
    assert all(at.startswith("20") and at.endswith("Z") for _, at in applied)


def test_a_step_that_fails_changes_nothing(connection: sqlite3.Connection) -> None:
    migrate(connection, "db", (ONE,))
    before = tables(connection)
    with pytest.raises(sqlite3.Error, match="missing"):
        migrate(connection, "db", (ONE, TWO, BROKEN))
    assert (tables(connection), schema_version(connection)) == (before, 1)
    assert not connection.in_transaction


def test_a_newer_schema_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection, "db", (ONE, TWO))
    with pytest.raises(LedgerError, match=r"^db: its schema has version 2.*up to 1"):
        migrate(connection, "db", (ONE,))
    assert not connection.in_transaction


def test_a_database_of_something_else_is_refused_untouched(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(LedgerError, match="not a Mileage ledger"):
        migrate(connection, "db")
    assert tables(connection) == ["theirs"]


def test_versions_count_up_from_one() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_the_table_has_every_field_of_a_timeline(connection: sqlite3.Connection) -> None:
    migrate(connection, "db")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(requests)")]
    assert columns[: len(FINISH_FIELDS)] == list(FINISH_FIELDS)


def test_an_old_ledger_keeps_its_requests_which_nobody_has_booked(
    connection: sqlite3.Connection,
) -> None:
    migrate(connection, "db", MIGRATIONS[:3])
    connection.execute(
        "INSERT INTO requests (id, tenant, model, endpoint, stream, arrived_at_utc_ns, outcome, "
        "attempts, gpu_ns) VALUES (1, 'a', 'm', 'chat', 0, 5, 'ok', 1, 7)"
    )
    assert migrate(connection, "db") == len(MIGRATIONS) - 3
    found = connection.execute(
        "SELECT tenant, gpu_ns, key, adapter, labels, attributed_ns, booked FROM requests"
    ).fetchall()
    assert found == [("a", 7, None, None, None, None, 0)]


def test_the_roll_ups_have_the_fields_of_the_rows_they_become(
    connection: sqlite3.Connection,
) -> None:
    migrate(connection, "db")
    for table, row in (("usage_hours", UsageRow), ("capacity_hours", CapacityRow)):
        columns = {column[1] for column in connection.execute(f"PRAGMA table_info({table})")}
        assert set(row.__struct_fields__) <= columns
        minutes = connection.execute(f"PRAGMA table_info({table.replace('hour', 'minute')})")
        assert {column[1] for column in minutes} - columns == {"minute_at_utc_s"}
