"""Feeder: one per directory; its thread outlives failures and feeds the rest before it ends."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.feeder import DAY_NS, Feeder
from mileage.storage.log import LogWriter
from mileage.storage.retention import RETENTION_ROWS
from mileage.storage.segment import SegmentName
from mileage.storage.sqlite import DATABASE_NAME, InsertCounts, RowBatch, SqliteStore
from tests.support.ledger_directory import drain, kill, segments, stored
from tests.support.ledger_records import BASE_UTC_NS, request, store_ends, timeline

Open = Callable[..., LogWriter]


def test_a_second_feeder_of_the_directory_is_refused(tmp_path: Path, feeder: Feeder) -> None:
    with pytest.raises(LedgerError, match=rf"{tmp_path}: .*\(pid {os.getpid()}\)"):
        Feeder(tmp_path)


def test_a_database_that_can_never_work_is_refused_and_the_directory_let_go(
    tmp_path: Path,
) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"no database" * 1000)
    for _ in range(2):
        with pytest.raises(LedgerError, match=DATABASE_NAME):
            Feeder(tmp_path)


class FullDisk(SqliteStore):
    """A store whose disk is full while `full` is set."""

    full = False

    def insert(self, batch: RowBatch) -> InsertCounts:
        if self.full:
            raise LedgerError(self.path, "database or disk is full")
        return super().insert(batch)


def test_while_the_database_cannot_be_written_the_log_keeps_everything(
    tmp_path: Path, open_writer: Open
) -> None:
    store = FullDisk(tmp_path / DATABASE_NAME)
    feeder = Feeder(tmp_path, open_store=lambda path: store)
    writer = open_writer(segment_bytes_max=2000)
    writer.intent(request(99), BASE_UTC_NS)
    store.full = True
    for number in range(40):
        writer.intent(request(number), BASE_UTC_NS)
        writer.finish(timeline(number))
    kill(writer)
    for _ in range(3):
        with pytest.raises(LedgerError, match="full"):
            feeder.step()
    assert len(segments(tmp_path)) == writer._sequence
    assert feeder.status().pending_rows > 0
    store.full = False
    drain(feeder)
    assert (len(stored(tmp_path)), segments(tmp_path)) == (41, [])
    assert (feeder.status().lost_total, feeder.status().repeated_total) == (1, 0)
    feeder.stop()


def test_a_database_that_cannot_be_opened_now_is_opened_later(
    tmp_path: Path, open_writer: Open
) -> None:
    failures = [errno.ENOSPC, errno.ENOSPC]

    def open_store(path: Path) -> SqliteStore:
        if failures:
            cause = OSError(failures.pop(), "No space left on device")
            raise LedgerError(str(path), "cannot make it") from cause
        return SqliteStore(path)

    feeder = Feeder(tmp_path, open_store=open_store)
    assert "cannot make it" in str(feeder.status().error)
    open_writer().finish(timeline(0))
    with pytest.raises(LedgerError):
        feeder.step()
    drain(feeder)
    assert len(stored(tmp_path)) == 1
    feeder.stop()


def test_one_segment_that_cannot_be_opened_does_not_keep_the_others_waiting(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    (tmp_path / "log" / str(SegmentName(1_700_000_000_000_000, 0, 1))).mkdir()
    open_writer().finish(timeline(0))
    with pytest.raises(OSError, match="directory"):
        feeder.step()
    assert len(stored(tmp_path)) == 1


def test_rows_past_the_retention_are_deleted_in_small_batches(tmp_path: Path) -> None:
    now_s, rows = [0.0], RETENTION_ROWS + 5
    feeder = Feeder(
        tmp_path,
        retention_days=1,
        clock=lambda: now_s[0],
        utc_ns=lambda: BASE_UTC_NS + rows * 1_000_000 + DAY_NS,
    )
    with closing(SqliteStore(tmp_path / DATABASE_NAME)) as store:
        store_ends(store, [timeline(n) for n in range(rows + 3)])
        assert feeder.step()
        assert len(stored(tmp_path)) == 8
        assert not feeder.step()
        assert len(stored(tmp_path)) == 3
        store_ends(store, [timeline(0)])
        assert not feeder.step()
        assert len(stored(tmp_path)) == 4
        now_s[0] = 1000.0
        feeder.step()
        assert len(stored(tmp_path)) == 3
    feeder.stop()


def test_the_retention_may_change_while_it_runs(tmp_path: Path) -> None:
    now_s = [0.0]
    feeder = Feeder(
        tmp_path,
        retention_days=None,
        clock=lambda: now_s[0],
        utc_ns=lambda: BASE_UTC_NS + 1_000_000_000 + 2 * DAY_NS,
    )
    with closing(SqliteStore(tmp_path / DATABASE_NAME)) as store:
        store_ends(store, [timeline(n) for n in range(3)])
        for days, left in ((None, 3), (3, 3), (1, 0)):
            feeder.retention_days = days
            now_s[0] += 1000.0
            feeder.step()
            assert len(stored(tmp_path)) == left
    feeder.stop()


def test_the_thread_feeds_until_it_is_stopped_and_then_feeds_the_rest(
    tmp_path: Path, open_writer: Open
) -> None:
    feeder = Feeder(tmp_path, interval_s=3600)
    feeder.start()
    assert feeder.status().running
    writer = open_writer()
    for number in range(100):
        writer.finish(timeline(number))
    writer.close()
    assert feeder.stop(timeout_s=30)
    assert not feeder.status().running
    assert (len(stored(tmp_path)), segments(tmp_path)) == (100, [])
    Feeder(tmp_path).stop()


def test_the_thread_outlives_errors_shows_them_and_recovers(
    tmp_path: Path, open_writer: Open, caplog: pytest.LogCaptureFixture
) -> None:
    failed, recovered = threading.Event(), threading.Event()

    class Failing(SqliteStore):
        """Fails until the test has seen it."""

        def insert(self, batch: RowBatch) -> InsertCounts:
            if not recovered.is_set():
                failed.set()
                raise sqlite3.ProgrammingError("unforeseen")
            return super().insert(batch)

    open_writer().finish(timeline(0))
    feeder = Feeder(tmp_path, interval_s=0.001, open_store=Failing)
    feeder.start()
    assert failed.wait(60)
    failed.clear()
    assert failed.wait(60)
    assert feeder.status().error == "unforeseen"
    recovered.set()
    assert feeder.stop(timeout_s=30)
    assert (feeder.status().error, len(stored(tmp_path))) == (None, 1)
    assert caplog.text.count("the ledger cannot be fed: unforeseen") == 1
