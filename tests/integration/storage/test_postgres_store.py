"""PostgresStore on a real server: a row per request of each gateway, whatever comes twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.migrations import MIGRATIONS
from mileage.storage.postgres import PostgresStore
from mileage.storage.postgres_connection import connect, out_of_reach
from mileage.storage.postgres_gateways import NUMBERS
from mileage.storage.postgres_migrations import POSTGRES_MIGRATIONS, migrate_postgres
from mileage.storage.queries import LedgerReader
from mileage.storage.record import encode_token_times
from mileage.storage.sqlite import GATEWAY_SHIFT, InsertCounts, RowBatch, SqliteStore
from mileage.storage.usage_reader import UsageReader
from tests.support.ledger_records import request_id, store_ends, streamed, timeline
from tests.support.postgres import PostgresServer, postgres_server, rows_of

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def address(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    return server.database(request.node.name)


@pytest.fixture
def store(address: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(address, identity="one")) as store:
        yield store


def test_both_databases_have_the_same_tables_and_columns(
    store: PostgresStore, address: str, tmp_path: Path
) -> None:
    kinds = {"BIGINT": "INTEGER", "DOUBLE PRECISION": "REAL", "BYTEA": "BLOB", "TEXT": "TEXT"}
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in rows_of(
        address,
        "SELECT table_name, column_name, upper(data_type) FROM information_schema.columns "
        "WHERE table_schema = current_schema()",
    ):
        found.setdefault(table, {})[column] = kinds[kind]
    with closing(SqliteStore(tmp_path / "ledger.sqlite")) as lite, lite.transaction() as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        expected = {
            table: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in tables
        }
        indexes = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
            )
        ]
    assert {table: found[table] for table in expected} == expected
    assert found.keys() - expected.keys() == {"gateways", "budget_parts"}
    there = {name for (name,) in rows_of(address, "SELECT indexname FROM pg_indexes")}
    assert set(indexes) <= there


def test_an_older_schema_is_brought_up_to_date_by_one_of_those_that_start(address: str) -> None:
    with closing(connect(address)) as connection:
        assert migrate_postgres(connection, POSTGRES_MIGRATIONS[:2]) == 2
    rows_of(
        address,
        "INSERT INTO requests (id, tenant, model, endpoint, stream, arrived_at_utc_ns, outcome, "
        "attempts) VALUES (7, 't', 'm', 'chat', 0, 5, 'ok', 1) RETURNING id",
    )

    def start(identity: int) -> None:
        PostgresStore(address, identity=str(identity)).close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert rows_of(address, "SELECT version FROM schema_version ORDER BY version") == [
        (migration.version,) for migration in MIGRATIONS
    ]
    assert rows_of(address, "SELECT id, booked, labels FROM requests") == [(7, 0, None)]


def test_a_schema_of_a_newer_program_is_refused(store: PostgresStore, address: str) -> None:
    rows_of(address, "INSERT INTO schema_version VALUES (99, '') RETURNING version")
    with pytest.raises(LedgerError, match="newer Mileage"):
        PostgresStore(address, identity="two")


def test_tables_of_somebody_else_are_left_alone(address: str) -> None:
    with closing(connect(address)) as connection:
        connection.execute("CREATE TABLE requests (id INTEGER)")
    with pytest.raises(LedgerError, match="no Mileage ledger"):
        PostgresStore(address, identity="one")
    assert rows_of(address, "SELECT * FROM requests") == []


def test_rows_are_what_was_stored(store: PostgresStore, address: str) -> None:
    stream = streamed(1, merged_into=request_id(0), labels="a=b", key="k\0ey", gpu_ns=5)
    assert store_ends(store, [timeline(0), stream]) == 2
    (row,) = rows_of(
        address,
        "SELECT stream, last_token_s, merged_into, key, labels, token_times FROM requests "
        f"WHERE id = {request_id(1)}",
    )
    assert row[:5] == (1, 0.1 + 0.2, request_id(0), "k\N{REPLACEMENT CHARACTER}ey", "a=b")
    assert row[5] == encode_token_times(stream.token_times)


def test_what_comes_twice_is_stored_once_and_told_apart(store: PostgresStore) -> None:
    store_ends(store, [timeline(0), timeline(1)])
    batch = RowBatch(
        brief=[_brief(0), _brief(1, "failed"), _brief(2), _brief(2)],
        lost=[_brief(1, "lost"), _brief(3, "lost")],
    )
    assert store.insert(batch) == InsertCounts(inserted=1, lost=1, repeated=2, conflicting=1)


def test_two_gateways_store_requests_that_have_the_same_id(
    store: PostgresStore, address: str
) -> None:
    with closing(PostgresStore(address, identity="two")) as other:
        assert store_ends(store, [timeline(0)]) == 1
        assert store_ends(other, [timeline(0, tenant="other"), streamed(1, merged_into=5)]) == 2
        assert store_ends(other, [timeline(0, tenant="other")]) == 0
    second = 1 << GATEWAY_SHIFT
    assert rows_of(address, "SELECT id, tenant, merged_into FROM requests ORDER BY id") == [
        (request_id(0), "team-0", None),
        (request_id(0) | second, "other", None),
        (request_id(1) | second, "team-1", second | 5),
    ]


def test_a_gateway_keeps_its_number_and_one_that_ended_leaves_it(
    store: PostgresStore, address: str
) -> None:
    store_ends(store, [timeline(0)])
    for number in range(1, NUMBERS):
        with closing(PostgresStore(address, identity=f"g{number}")) as other:
            other.shared.report(1, 0)
    with (
        closing(PostgresStore(address, identity="more")) as more,
        pytest.raises(LedgerError, match="64 gateways"),
    ):
        more.shared.report(1, 0)
    with closing(PostgresStore(address, identity="g7")) as again:
        again.shared.report(1, 0)
        again.shared.end()
    with closing(PostgresStore(address, identity="more")) as more:
        assert store_ends(more, [timeline(0)]) == 1
    assert (request_id(0) | 7 << GATEWAY_SHIFT,) in rows_of(address, "SELECT id FROM requests")


def test_one_leads_until_its_connection_ends(store: PostgresStore, address: str) -> None:
    with closing(PostgresStore(address, identity="two")) as other:
        assert store.shared.lead() == 1
        assert other.shared.lead() is None
        assert store.shared.lead() == 1
        store.close()
        assert _soon(other.shared.lead) == 1
        assert store.shared.lead() is None


def test_all_wait_for_the_slowest_that_is_there(store: PostgresStore, address: str) -> None:
    with closing(PostgresStore(address, identity="two")) as other:
        assert store.shared.report(100, 0) == 100
        assert other.shared.report(50, 0) == 50
        assert store.shared.report(120, 0) == 50
        assert store.shared.report(130, 60) == 130
        other.shared.end()
        assert store.shared.report(140, 0) == 140


def test_a_server_that_is_down_is_waited_for(server: PostgresServer, address: str) -> None:
    with closing(PostgresStore(address, identity="one")) as store:
        store_ends(store, [timeline(0)])
        server.stop()
        with pytest.raises(LedgerError) as caught:
            store_ends(store, [timeline(1)])
        assert out_of_reach(caught.value)
        with closing(PostgresStore(address, identity="two")) as begun_meanwhile:
            server.start()
            assert store_ends(begun_meanwhile, [timeline(1)]) == 1
        assert store_ends(store, [timeline(1)]) == 1
    assert len(rows_of(address, "SELECT id FROM requests")) == 3


def test_rows_are_stored_faster_than_gateways_make_them(
    store: PostgresStore, address: str, record_property: Callable[[str, object], None]
) -> None:
    batches = [[timeline(5000 * batch + n) for n in range(5000)] for batch in range(4)]
    begun_s = time.perf_counter()
    for batch in batches:
        assert store_ends(store, batch) == 5000
    rate = 20_000 / (time.perf_counter() - begun_s)
    record_property("rows_per_s", round(rate))
    print(f"{rate:.0f} rows/s")
    with closing(LedgerReader(address)) as reader:
        assert [row.id for row in reader.by_arrival()] == [request_id(n) for n in range(20_000)]
    with closing(UsageReader(address)) as usage:
        found = [row.request.id for row in usage.requests(0, 1e10)]
    assert found == [request_id(n) for n in range(20_000)], "piece by piece, each once"
    assert rate > 2000, "far below what it is for, even on a machine that does much else"


def test_messages_name_the_database_without_who_asks(address: str) -> None:
    with pytest.raises(LedgerError) as caught:
        connect(address.replace("mileage@", "secret:word@") + "?connect_timeout=1x")
    assert "word" not in str(caught.value)


def _brief(number: int, outcome: str = "ok") -> Any:
    end = timeline(number, outcome=outcome)
    place = type(end).__struct_fields__.index("reasoning_tokens")
    return tuple(getattr(end, name) for name in type(end).__struct_fields__[:place])


def _soon(ask: object) -> object:
    deadline = time.monotonic() + 60
    while (answer := ask()) is None and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.02)
    return answer
