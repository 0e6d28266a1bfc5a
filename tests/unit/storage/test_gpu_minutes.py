"""Minutes of GPUs: from any thread into the ledger, bounded, and never in the way of requests."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage import gpu_minute_queue
from mileage.storage.feeder import Feeder
from mileage.storage.gpu_minute_queue import GpuMinuteQueue
from mileage.storage.gpu_minutes import GpuMinute, read_gpu_minutes
from mileage.storage.log import LogWriter
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.ledger_directory import drain, stored
from tests.support.ledger_records import BASE_UTC_NS, request, timeline

FIELDS = ("power_w", "sm_active_ratio")


class Failing(SqliteStore):
    """Fails in every transaction beside requests while `broken` is set."""

    broken = False
    tried = 0

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self.tried += 1
        if self.broken:
            raise LedgerError(self.path, "database or disk is full")
        with super().transaction() as connection:
            yield connection


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Failing]:
    with closing(Failing(tmp_path / DATABASE_NAME)) as store:
        yield store


def minute(number: int, mean: float = 0.5, **fields: str) -> GpuMinute:
    given = {"host": "n1", "gpu": "0", "field": "sm_active_ratio", **fields}
    return GpuMinute(60 * number, **given, mean=mean, max=mean, samples=9)


def queue() -> GpuMinuteQueue:
    return GpuMinuteQueue(pause_s=1.0, pause_max_s=3.0)


def read(directory: Path) -> list[GpuMinute]:
    return list(read_gpu_minutes(directory, 0, 10**9, FIELDS))


def test_what_is_noted_is_read_in_order_and_once(tmp_path: Path, store: Failing) -> None:
    minutes = queue()
    rows = [minute(2), minute(1), minute(1, 90.0, field="power_w"), minute(1, gpu="1")]
    minutes.note(rows)
    assert not minutes.store(store, 0.0)
    assert read(tmp_path) == sorted(rows)
    minutes.note([minute(1, 0.9), minute(3)])
    assert not minutes.store(store, 0.0)
    assert read(tmp_path) == [*sorted(rows), minute(3)]
    assert (len(minutes), minutes.dropped_total) == (0, 0)


def test_only_the_time_and_the_figures_that_are_asked_for(tmp_path: Path, store: Failing) -> None:
    minutes = queue()
    minutes.note([minute(number) for number in range(5)])
    minutes.store(store, 0.0)
    found = read_gpu_minutes(tmp_path, 60, 180, FIELDS)
    assert [row.minute_at_utc_s for row in found] == [60, 120]
    assert list(read_gpu_minutes(tmp_path, 0, 10**9, ("power_w",))) == []


def test_the_oldest_give_way_and_are_counted(
    tmp_path: Path, store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_minute_queue, "PENDING_MAX", 3)
    minutes = queue()
    minutes.note([minute(number) for number in range(5)])
    assert (len(minutes), minutes.dropped_total) == (3, 2)
    minutes.store(store, 0.0)
    assert [row.minute_at_utc_s for row in read(tmp_path)] == [120, 180, 240]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_dropped_and_the_rest_stored(
    tmp_path: Path, store: Failing, value: float
) -> None:
    minutes = queue()
    minutes.note([minute(1, value), minute(2)])
    minutes.store(store, 0.0)
    assert minutes.dropped_total == 1
    assert read(tmp_path) == [minute(2)]


def test_names_that_a_database_cannot_hold_are_made_so(tmp_path: Path, store: Failing) -> None:
    minutes = queue()
    minutes.note([minute(1, host="a\0b", gpu="\ud800")])
    minutes.store(store, 0.0)
    assert [(row.host, row.gpu) for row in read(tmp_path)] == [("a�b", "?")]


def test_a_large_backlog_is_stored_in_parts(
    tmp_path: Path, store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_minute_queue, "_AT_ONCE", 2)
    minutes = queue()
    minutes.note([minute(number) for number in range(5)])
    assert [minutes.store(store, 0.0) for _ in range(3)] == [True, True, False]
    assert len(read(tmp_path)) == 5


def test_after_a_failure_it_waits_longer_and_longer_and_nothing_is_lost(
    tmp_path: Path, store: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    minutes = queue()
    minutes.note([minute(1)])
    store.broken = True
    tried = [now for now in range(12) if not minutes.store(store, now) and store.tried > 0]
    assert tried[0] == 0
    assert store.tried == 5  # at 0, 1, 3, 6, 9
    assert "full" in str(minutes.error)
    assert len([r for r in caplog.records if "minutes of GPUs" in r.message]) == 1
    store.broken = False
    minutes.store(store, 12.0)
    assert str(minutes.error) == "None"
    assert read(tmp_path) == [minute(1)]


def test_the_feeder_stores_minutes_and_requests_whatever_becomes_of_minutes(
    tmp_path: Path, open_writer: Callable[..., LogWriter], store: Failing
) -> None:
    feeder = Feeder(tmp_path, open_store=lambda path: store)
    feeder.note_gpu_minutes([minute(1)])
    drain(feeder)
    assert read(tmp_path) == [minute(1)]
    with store.transaction() as connection:
        connection.execute("DROP TABLE gpu_minutes")
    feeder.note_gpu_minutes([minute(2), minute(3, math.nan)])
    writer = open_writer()
    writer.intent(request(1), BASE_UTC_NS)
    writer.finish(timeline(1))
    drain(feeder)
    assert len(stored(tmp_path)) == 1
    status = feeder.status()
    assert (status.error, status.gpu_minutes_dropped_total) == (None, 1)
    assert "gpu_minutes" in (status.gpu_minutes_error or "")
    feeder.stop()


def test_what_was_noted_before_the_stop_is_stored_by_it(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, interval_s=30.0)
    feeder.start()
    feeder.note_gpu_minutes([minute(1)])
    assert feeder.stop()
    assert read(tmp_path) == [minute(1)]
