"""LedgerReader: filters, counts and checks what is stored, and changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from mileage.core.errors import LedgerError
from mileage.storage.migrations import MIGRATIONS
from mileage.storage.queries import LedgerReader, OutcomeCount, RequestFilter, Spent
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.ledger_records import BASE_UTC_NS, request_id, store_ends, streamed, timeline

ENDS = [
    timeline(0),
    timeline(1, model="other", outcome="failed", status=502, prompt_tokens=None),
    timeline(2, outcome="cancelled", status=499),
    streamed(3),
    timeline(4, outcome="failed", status=504, output_tokens=None),
    timeline(5, model="other"),
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / DATABASE_NAME)
    store_ends(store, ENDS)
    store.close()
    return tmp_path


@pytest.fixture
def reader(directory: Path) -> Iterator[LedgerReader]:
    reader = LedgerReader(directory)
    yield reader
    reader.close()


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        pytest.param(RequestFilter(), [5, 4, 3, 2, 1, 0], id="all, latest first"),
        pytest.param(RequestFilter(tenant="team-0"), [3, 0], id="of a tenant"),
        pytest.param(RequestFilter(model="other"), [5, 1], id="of a model"),
        pytest.param(RequestFilter(outcome="failed"), [4, 1], id="with an outcome"),
        pytest.param(RequestFilter(since_utc_ns=BASE_UTC_NS + 4_000_000), [5, 4], id="since then"),
        pytest.param(RequestFilter(tenant="team-2", model="other"), [5], id="all must match"),
        pytest.param(RequestFilter(tenant="' OR 1=1 --"), [], id="a name that looks like SQL"),
    ],
)
def test_requests_are_filtered(
    reader: LedgerReader, where: RequestFilter, numbers: list[int]
) -> None:
    assert [t.id for t in reader.last(10, where)] == [request_id(n) for n in numbers]
    assert [t.id for t in reader.last(1, where)] == [request_id(n) for n in numbers[:1]]
    assert [t.id for t in reader.by_arrival(where)] == [request_id(n) for n in reversed(numbers)]


def test_requests_and_tokens_are_counted_by_tenant_and_outcome(reader: LedgerReader) -> None:
    def count(tenant: str, outcome: str, *numbers: int | None) -> OutcomeCount:
        requests, prompt_tokens, output_tokens = numbers
        assert requests is not None
        return OutcomeCount(
            tenant=tenant,
            outcome=outcome,  # type: ignore[arg-type]
            requests=requests,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )

    assert reader.counts() == [
        count("team-0", "ok", 2, 200, 34),
        count("team-1", "failed", 2, 100, 17),
        count("team-2", "cancelled", 1, 100, 17),
        count("team-2", "ok", 1, 100, 17),
    ]
    assert reader.counts(RequestFilter(outcome="failed", model="other")) == [
        count("team-1", "failed", 1, None, 17)
    ]


def test_tokens_of_a_shared_generation_are_counted_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / DATABASE_NAME)
    leader, *joined = (timeline(number, tenant="t", merged_members=3) for number in range(3))
    joined = [structs.replace(end, merged_into=leader.id) for end in joined]
    store_ends(store, [leader, *joined])
    store.close()
    with closing(LedgerReader(tmp_path)) as reader:
        (count,) = reader.counts()
        assert reader.last(3) == [*reversed(joined), leader]
    assert (count.requests, count.prompt_tokens, count.output_tokens) == (3, 100, 17)


@pytest.mark.parametrize(
    ("conditions", "tokens", "gpu_ns"),
    [
        pytest.param({}, 117 + 117 + 105 + 117, 1111, id="all"),
        pytest.param({"since_utc_ns": BASE_UTC_NS + 1_000_000}, 117 + 105 + 117, 1110, id="since"),
        pytest.param({"before_utc_ns": BASE_UTC_NS + 1_000_000}, 117, 1, id="before"),
        pytest.param({"worker": 3}, 117, 1000, id="of one worker"),
    ],
)
def test_what_a_tenant_spent_is_summed(
    tmp_path: Path, conditions: dict[str, int], tokens: int, gpu_ns: int
) -> None:
    store = SqliteStore(tmp_path / DATABASE_NAME)
    ends = [
        timeline(0, gpu_ns=1, cost_nano_usd=7),
        timeline(1, gpu_ns=10),
        timeline(2, output_tokens=None, output_tokens_counted=5, gpu_ns=50, merged_members=2),
        timeline(3, gpu_ns=50, merged_into=request_id(2), merged_members=2),
        timeline(4, 3, gpu_ns=1000),
    ]
    others = timeline(5, tenant="other", gpu_ns=10**9)
    store_ends(store, [*(structs.replace(end, tenant="t") for end in ends), others])
    store.close()
    with closing(LedgerReader(tmp_path)) as reader:
        found = reader.spent("t", **{"since_utc_ns": 0, **conditions})
        nothing = reader.spent("nobody", since_utc_ns=0)
    assert (found.tokens, found.gpu_ns) == (tokens, gpu_ns)
    assert nothing == Spent(tokens=0, gpu_ns=0, cost_nano_usd=0)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(RequestFilter(), id="all"),
        pytest.param(RequestFilter(tenant="t"), id="a tenant"),
        pytest.param(RequestFilter(since_utc_ns=1), id="since"),
        pytest.param(RequestFilter(tenant="t", since_utc_ns=1), id="a tenant since"),
    ],
)
def test_the_latest_are_found_by_an_index_without_sorting(
    directory: Path, where: RequestFilter
) -> None:
    clause, parameters = where.sql()
    sql = f"SELECT * FROM requests{clause} ORDER BY arrived_at_utc_ns DESC, id DESC LIMIT 5"
    with closing(sqlite3.connect(directory / DATABASE_NAME)) as connection:
        plan = str(connection.execute("EXPLAIN QUERY PLAN " + sql, parameters).fetchall())
    assert "USING INDEX requests_by_" in plan
    assert "TEMP B-TREE" not in plan


def test_a_sound_ledger_has_no_problems(reader: LedgerReader) -> None:
    assert reader.verify() == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param("itl_p99_s = -1", "a negative figure", id="negative time"),
        pytest.param("output_tokens = -1", "a negative figure", id="negative tokens"),
        pytest.param("first_token_s = 9", "times out of order", id="first token after the last"),
        pytest.param(
            "dispatched_s = 9, first_token_s = NULL", "times out of order", id="far apart"
        ),
        pytest.param("outcome = 'good'", "an unknown outcome", id="outcome"),
    ],
)
def test_a_row_that_makes_no_sense_is_a_problem(
    directory: Path, reader: LedgerReader, change: str, problem: str
) -> None:
    with closing(sqlite3.connect(directory / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute(f"UPDATE requests SET {change} WHERE id = ?", (request_id(3),))
    assert reader.verify() == [f"1 requests have {problem}, the first has id {request_id(3)}"]


def test_a_damaged_database_is_a_problem_or_an_error_that_names_it(directory: Path) -> None:
    path = directory / DATABASE_NAME
    data = bytearray(path.read_bytes())
    for page in range(2 * 4096, len(data), 4096):
        data[page : page + 8] = b"\xff" * 8
    path.write_bytes(data)
    problems: list[str] = []
    try:
        with closing(LedgerReader(directory)) as reader:
            problems = reader.verify()
    except LedgerError as error:
        problems = [str(error)] if str(path) in str(error) else []
    assert problems


def test_damaged_token_times_are_an_error_that_names_the_request(
    directory: Path, reader: LedgerReader
) -> None:
    with closing(sqlite3.connect(directory / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE requests SET token_times = x'ff' WHERE id = ?", (request_id(3),))
    with pytest.raises(LedgerError, match=f"request {request_id(3)}"):
        reader.last(10)


def test_reading_goes_on_while_a_store_writes(directory: Path, reader: LedgerReader) -> None:
    store = SqliteStore(directory / DATABASE_NAME)
    store_ends(store, [timeline(6)])
    assert [t.id for t in reader.last(1)] == [request_id(6)]
    store.close()
    assert [t.id for t in reader.last(1)] == [request_id(6)]


def test_a_directory_without_a_ledger_is_named_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=str(tmp_path)):
        LedgerReader(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [0, len(MIGRATIONS) + 1])
def test_a_schema_of_another_version_is_refused(directory: Path, version: int) -> None:
    with closing(sqlite3.connect(directory / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (?, '')", (version,))
    with pytest.raises(LedgerError, match=f"its schema has version {version}"):
        LedgerReader(directory)


def test_a_copy_where_one_may_not_write_is_read_and_nothing_is_made_beside_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    reader = LedgerReader(directory)
    try:
        assert reader.last(1)
        assert [path.name for path in directory.iterdir()] == [DATABASE_NAME]
    finally:
        reader.close()


def test_another_program_s_database_is_not_told_to_be_migrated(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(LedgerError, match="an SQLite database, but not a Mileage ledger"):
        LedgerReader(tmp_path)


def test_a_path_with_odd_characters_is_opened(tmp_path: Path) -> None:
    odd = tmp_path / "a b?c#d%20é"
    odd.mkdir()
    store = SqliteStore(odd / DATABASE_NAME)
    store_ends(store, [timeline(1)])
    store.close()
    reader = LedgerReader(odd)
    assert len(reader.last(5)) == 1
    reader.close()
