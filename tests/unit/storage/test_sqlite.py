"""SqliteStore: a row per request, however often it is stored; errors name the file."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mileage.core.errors import LedgerError
from mileage.core.timeline import RequestTimeline
from mileage.storage.queries import LedgerReader
from mileage.storage.record import BriefRow
from mileage.storage.sqlite import DATABASE_NAME, InsertCounts, RowBatch, SqliteStore, may_pass
from tests.support.file_limit import file_size_limit
from tests.support.ledger_records import BASE_UTC_NS, request_id, store_ends, streamed, timeline


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / DATABASE_NAME)
    yield store
    store.close()


def stored(store: SqliteStore) -> list[RequestTimeline]:
    reader = LedgerReader(Path(store.path).parent)
    try:
        return reader.last(1000)
    finally:
        reader.close()


def brief(number: int, outcome: Any = "ok", **changes: Any) -> BriefRow:
    values = {"status": 200, "attempts": 1, "prompt_tokens": 5, **changes}
    return (
        request_id(number),
        "team",
        "smollm2",
        "chat",
        False,
        BASE_UTC_NS + number,
        outcome,
        values["status"],
        None,
        values["attempts"],
        None,
        0.1,
        0.2,
        0.3,
        0.4,
        values["prompt_tokens"],
        None,
        None,
    )


def test_every_field_comes_back_as_it_was(store: SqliteStore) -> None:
    ends = [timeline(1), streamed(2), timeline(3, model="\0 ünï\n", reason="", outcome="failed")]
    assert store_ends(store, ends) == 3
    assert stored(store) == ends[::-1]
    assert stored(store)[1].stream is True


def test_storing_the_same_again_changes_nothing(store: SqliteStore) -> None:
    ends = [timeline(n) for n in range(1200)]
    assert store_ends(store, ends) == 1200
    assert store_ends(store, [*ends, timeline(1200)]) == 1
    assert len(stored(store)) == 1000


def test_a_batch_is_counted_row_by_row(store: SqliteStore) -> None:
    first = store.insert(RowBatch(brief=[brief(1), brief(2)], lost=[brief(3, "lost")]))
    assert first == InsertCounts(inserted=2, lost=1)
    again = store.insert(
        RowBatch(
            brief=[brief(1), brief(2, prompt_tokens=6), brief(4), brief(4), brief(5)],
            lost=[brief(1, "lost"), brief(3, "lost")],
        )
    )
    assert again == InsertCounts(inserted=2, lost=0, repeated=2, conflicting=1)
    assert {t.id: t.outcome for t in stored(store)}[request_id(1)] == "ok"
    assert {t.id: t.prompt_tokens for t in stored(store)}[request_id(2)] == 5


def test_a_brief_end_and_a_detailed_one_of_the_same_request_are_compared(
    store: SqliteStore,
) -> None:
    store_ends(store, [streamed(1), timeline(2)])
    counts = store.insert(RowBatch(brief=[brief(1)], detailed=[]))
    assert counts == InsertCounts(conflicting=1)


def test_an_end_with_a_charge_comes_back_and_is_compared(store: SqliteStore) -> None:
    row = (*brief(1), 123, 45)
    assert store.insert(RowBatch(charged=[row])) == InsertCounts(inserted=1)
    (end,) = stored(store)
    assert (end.gpu_ns, end.cost_nano_usd, end.itl_mean_s, end.token_times) == (123, 45, None, ())
    assert store.insert(RowBatch(charged=[row])) == InsertCounts(repeated=1)
    assert store.insert(RowBatch(charged=[(*brief(1), 123, 46)])) == InsertCounts(conflicting=1)


def test_an_end_with_names_comes_back_and_is_compared(store: SqliteStore) -> None:
    row = (*brief(1), 123, 45, "ci", None, "env=prod")
    assert store.insert(RowBatch(named=[row])) == InsertCounts(inserted=1)
    (end,) = stored(store)
    assert (end.gpu_ns, end.key, end.adapter, end.labels) == (123, "ci", None, "env=prod")
    assert end.itl_mean_s is None
    assert store.insert(RowBatch(named=[row])) == InsertCounts(repeated=1)
    other = (*brief(1), 123, 45, "ci", None, None)
    assert store.insert(RowBatch(named=[other])) == InsertCounts(conflicting=1)


def test_numbers_that_a_database_cannot_hold_do_not_block_the_others(store: SqliteStore) -> None:
    rows = [
        brief(1),
        brief(2, prompt_tokens=1 << 63),
        brief(3, status=1 << 63),
        brief(4, attempts=1 << 63),
    ]
    assert store.insert(RowBatch(brief=rows)) == InsertCounts(inserted=2, refused=2)
    assert {t.id: t.prompt_tokens for t in stored(store)} == {request_id(1): 5, request_id(2): None}


def test_a_batch_that_fails_leaves_nothing_and_can_be_stored_later(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.insert(RowBatch(brief=[brief(0)]))
    batch = RowBatch(brief=[brief(n) for n in range(1, 4000)])
    with file_size_limit(200_000), pytest.raises(LedgerError) as failure:
        store.insert(batch)
    assert str(tmp_path / DATABASE_NAME) in str(failure.value)
    assert may_pass(failure.value)
    assert len(stored(store)) == 1
    assert store.insert(batch).inserted == 3999


def test_sync_works_with_and_without_something_to_sync(store: SqliteStore) -> None:
    store.sync()
    store_ends(store, [timeline(1)])
    store.sync()
    Path(f"{store.path}-wal").rename(f"{store.path}-gone")
    store.sync()


def test_nobody_else_can_read_the_database(store: SqliteStore) -> None:
    store_ends(store, [timeline(1)])
    for suffix in ("", "-wal", "-shm"):
        assert stat.S_IMODE(Path(store.path + suffix).stat().st_mode) == 0o600


def test_opening_again_does_not_take_the_locks_of_the_first(store: SqliteStore) -> None:
    store_ends(store, [timeline(1)])
    second = SqliteStore(store.path)
    second.close()
    # The last connection to close removes the log: if the first one's locks were gone, it is.
    assert Path(f"{store.path}-wal").exists()
    assert store_ends(store, [timeline(2)]) == 1


def test_a_store_waits_for_no_one_who_only_reads(store: SqliteStore) -> None:
    store_ends(store, [timeline(1)])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM requests").fetchone() == (1,)
        assert store_ends(store, [timeline(2)]) == 1
        assert reader.execute("SELECT count(*) FROM requests").fetchone() == (1,)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"this is no database " * 100, id="another file"),
        pytest.param(b"SQLite format 3\0" + b"\xff" * 4096, id="a damaged header"),
    ],
)
def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / DATABASE_NAME
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=DATABASE_NAME) as failure:
        SqliteStore(path)
    assert not may_pass(failure.value)
    assert path.read_bytes() == content


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"nowhere/ledger\.sqlite: cannot make it"):
        SqliteStore(tmp_path / "nowhere" / DATABASE_NAME)


def test_a_full_disk_at_the_start_may_pass(tmp_path: Path) -> None:
    with file_size_limit(1000), pytest.raises(LedgerError) as failure:
        SqliteStore(tmp_path / DATABASE_NAME)
    assert may_pass(failure.value)
    SqliteStore(tmp_path / DATABASE_NAME).close()


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    store.close()
    store.close()
    with pytest.raises(LedgerError, match="closed"):
        store_ends(store, [timeline(1)])
