"""JournalWriter: rotation, bounds, and that nothing which goes wrong is told to a request."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mileage.core.actions import Action, Dispatch
from mileage.core.events import Cancelled, ConfigChanged, Event, FirstToken
from mileage.storage import journal_writer as module
from mileage.storage.journal_files import journal_files
from mileage.storage.journal_reader import JournalReader
from mileage.storage.journal_writer import BATCH_RECORDS, RETRY_S, JournalWriter
from tests.support.journals import header, read_all

SEGMENT = 1 << 17
BYTES = 1 << 19
BATCH_BYTES_MAX = 30 * BATCH_RECORDS


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Untold(Exception):  # noqa: N818 -- it is none of ours
    """An exception that cannot be told."""

    def __str__(self) -> str:
        raise TypeError


class Told:
    """A controller that only counts what it is told; its state is that count."""

    def __init__(self) -> None:
        self.count = 0

    def state(self) -> bytes:
        return b"%d" % self.count


class Journal:
    """A writer with its clock and its controller."""

    def __init__(self, directory: Path, state: Callable[[], bytes] | None = None) -> None:
        self.clock, self.told = Clock(), Told()
        self.writer = JournalWriter(
            directory,
            header(),
            segment_bytes_max=SEGMENT,
            bytes_max=BYTES,
            clock=self.clock,
            utc_ns=lambda: 1_700_000_000_000_000_000,
        )
        self.writer.start(state or self.told.state)

    def tell(self, event: Event | None = None) -> None:
        self.told.count += 1
        self.writer.handled(float(self.told.count), event or FirstToken(self.told.count), ())

    def ok(self) -> bool:
        return self.writer.ok

    def tell_many(self, count: int) -> None:
        for _ in range(count):
            self.tell()


def numbers(directory: Path) -> list[list[int]]:
    """The events in each segment, by their time."""
    return [[int(r.now_s) for r in records] for _, records, _ in read_all(directory)]


def test_a_journal_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.tell_many(10)
    journal.writer.close()
    ((head, records, ending),) = read_all(tmp_path)
    assert (head.part, head.state, head.began_s) == (1, None, 1000.0)
    assert [r.event for r in records] == [FirstToken(n) for n in range(1, 11)]
    assert ending == "stopped"
    assert (journal.writer.records_total, journal.writer.dropped_total) == (10, 0)


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    Journal(tmp_path / "journal").writer.close()
    directory = tmp_path / "journal" / "worker-0"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "000001.mjl").stat().st_mode) == 0o600


def test_records_are_written_in_batches_and_at_a_flush(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    path = tmp_path / "worker-0" / "000001.mjl"
    empty = path.stat().st_size
    journal.tell_many(50)
    assert path.stat().st_size == empty
    journal.writer.flush()
    assert numbers(tmp_path) == [[*range(1, 51)]]
    size = path.stat().st_size
    for _ in range(BATCH_RECORDS - 1):
        journal.tell()
        assert path.stat().st_size == size
    journal.tell()
    assert numbers(tmp_path) == [[*range(1, 51 + BATCH_RECORDS)]]
    journal.writer.close()


def test_a_full_segment_is_followed_by_one_that_begins_with_the_state(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.tell_many(20_000)
    journal.writer.close()
    segments = read_all(tmp_path)
    assert len(segments) >= 3
    assert [head.part for head, _, _ in segments] == [*range(1, len(segments) + 1)]
    assert len({head.run for head, _, _ in segments}) == 1
    assert [e for _, _, e in segments] == ["rotated"] * (len(segments) - 1) + ["stopped"]
    assert [int(r.now_s) for _, records, _ in segments for r in records] == [*range(1, 20_001)]
    for head, records, _ in segments[1:]:
        assert head.state == b"%d" % (records[0].now_s - 1)
    for file in journal_files(tmp_path / "worker-0"):
        assert file.path.stat().st_size <= SEGMENT + BATCH_BYTES_MAX


def test_the_oldest_segments_are_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(20):
        journal.tell_many(5000)
        total = sum(f.path.stat().st_size for f in journal_files(tmp_path / "worker-0"))
        assert total <= BYTES + BATCH_BYTES_MAX
    journal.writer.close()
    found = numbers(tmp_path)
    assert found[0][0] > 1
    assert [n for part in found for n in part] == [*range(found[0][0], 100_001)]


def test_a_worker_with_little_traffic_keeps_to_the_bounds_too(tmp_path: Path) -> None:
    """Every second what waits is written, long before it is a batch."""
    journal = Journal(tmp_path)
    for _ in range(1000):
        journal.tell_many(BATCH_RECORDS - 1)
        journal.writer.flush()
        journal.writer.flush()
    sizes = [file.path.stat().st_size for file in journal_files(tmp_path / "worker-0")]
    assert max(sizes) <= SEGMENT + BATCH_BYTES_MAX
    assert sum(sizes) <= BYTES + BATCH_BYTES_MAX
    journal.writer.close()
    found = numbers(tmp_path)
    assert [n for part in found for n in part] == [*range(found[0][0], journal.told.count + 1)]


def test_with_a_big_state_segments_are_longer(tmp_path: Path) -> None:
    state = bytes(SEGMENT)
    journal = Journal(tmp_path, lambda: state)
    journal.tell_many(20_000)
    journal.writer.close()
    sizes = [f.path.stat().st_size for f in journal_files(tmp_path / "worker-0")]
    assert all(size >= 4 * SEGMENT for size in sizes[1:-1])
    assert sum(sizes) <= BYTES + SEGMENT + 2 * BATCH_BYTES_MAX


def test_a_worker_that_starts_again_goes_on_with_a_new_segment(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.tell()
    first.writer.close()
    second = Journal(tmp_path)
    second.tell()
    second.writer.close()
    assert [f.sequence for f in journal_files(tmp_path / "worker-0")] == [1, 2]
    assert [head.part for head, _, _ in read_all(tmp_path)] == [1, 1]


def test_a_live_segment_is_read_as_far_as_it_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.tell()
    journal.writer.flush()
    ((_, records, ending),) = read_all(tmp_path)
    assert (len(records), ending) == (1, "live")
    journal.writer.close()


def test_a_killed_writer_leaves_a_segment_that_ends_early(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(5):
        journal.tell()
        journal.writer.flush()
    os.close(journal.writer._fd)  # as the kernel does
    ((_, records, ending),) = read_all(tmp_path)
    assert (len(records), ending) == (5, "early")
    path = tmp_path / "worker-0" / "000001.mjl"
    os.truncate(path, path.stat().st_size - 3)
    with JournalReader(path) as reader:
        assert len(list(reader.records())) == 4
        assert (reader.ending, reader.torn_bytes > 0) == ("early", True)


def test_the_configuration_of_a_segment_is_the_one_in_force_when_it_began(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.tell(ConfigChanged(2, '{"a":1}'))
    journal.tell_many(10_000)
    journal.writer.close()
    assert [head.config for head, _, _ in read_all(tmp_path)][:2] == ["{}", '{"a":1}']


class Disk:
    """write(2) that fails as told; `room` bytes of a call still fit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: int | None = None
        self.room = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, fd: int, data: bytes) -> int:
        if self.error is None:
            return self._write(fd, data)
        if self.room:
            part, self.room = data[: self.room], 0
            return self._write(fd, part)
        raise OSError(self.error, os.strerror(self.error))


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_full_disk_stops_the_journal_until_there_is_room_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    room: int,
) -> None:
    disk = Disk(monkeypatch)
    journal = Journal(tmp_path)
    journal.tell_many(10)
    journal.writer.flush()
    disk.error, disk.room = errno.ENOSPC, room
    journal.tell_many(5)
    journal.writer.flush()
    assert not journal.ok()
    journal.tell(ConfigChanged(2, '{"a":1}'))
    for _ in range(3):
        journal.clock.now_s += RETRY_S
        journal.writer.flush()
    assert (journal.writer.records_total, journal.writer.dropped_total) == (10, 6)
    assert journal.writer.last_error == "No space left on device"

    disk.error = None
    journal.writer.flush()
    assert not journal.ok(), "it is tried again only after a while"
    journal.clock.now_s += RETRY_S
    journal.writer.flush()
    assert journal.ok()
    journal.tell_many(4)
    journal.writer.close()
    first, second = read_all(tmp_path)
    assert [int(r.now_s) for r in first[1]] == [*range(1, 11)]
    assert first[2] == "early"
    assert [int(r.now_s) for r in second[1]] == [17, 18, 19, 20]
    assert (second[0].state, second[0].part, second[0].config) == (b"16", 2, '{"a":1}')
    errors = [r.levelno for r in caplog.records]
    assert errors == [logging.ERROR, logging.WARNING]


def test_a_journal_that_cannot_begin_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").write_text("in the way")
    journal = Journal(tmp_path / "journal")
    assert not journal.ok()
    (tmp_path / "journal").unlink()
    journal.clock.now_s += RETRY_S
    journal.writer.flush()
    assert journal.ok()
    journal.writer.close()
    ((head, _, _),) = read_all(tmp_path / "journal")
    assert head.state is None, "nothing was missed: the controller is still new"


def test_a_rotation_that_fails_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)

    def refuse(directory: Path, sequence: int, header: bytes) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(module, "create_journal_file", refuse)
    journal.tell_many(10_000)
    monkeypatch.undo()
    assert not journal.ok()
    journal.clock.now_s += RETRY_S
    journal.writer.flush()
    journal.tell()
    journal.writer.close()
    first, second = read_all(tmp_path)
    assert len(first[1]) + journal.writer.dropped_total == 10_000
    assert [int(r.now_s) for r in first[1]] == [*range(1, len(first[1]) + 1)]
    assert second[0].state == b"10000"


def test_a_state_that_cannot_be_stored_stops_the_journal_only(tmp_path: Path) -> None:
    def state() -> bytes:
        raise TypeError("cannot pickle")

    journal = Journal(tmp_path, state)
    journal.tell_many(10_000)
    assert not journal.ok()
    assert journal.writer.last_error == "cannot pickle"
    journal.writer.close()


def test_an_event_that_cannot_be_stored_stops_the_journal_only(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.tell()
    journal.writer.flush()
    journal.tell(Cancelled(1 << 70))
    journal.tell()
    journal.writer.flush()
    assert not journal.ok()
    assert (journal.writer.records_total, journal.writer.dropped_total) == (1, 2)
    journal.writer.close()
    assert numbers(tmp_path) == [[1]]


def test_what_the_controller_does_with_its_list_later_changes_no_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    actions: list[Action] = [Dispatch(1, "gpu-a")]
    journal.writer.handled(1.0, FirstToken(1), actions)
    actions.clear()
    journal.writer.close()
    ((_, (record,), _),) = read_all(tmp_path)
    assert record.actions == (Dispatch(1, "gpu-a"),)


def test_an_exception_of_the_controller_is_written_at_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.tell()
    journal.writer.failed(2.0, FirstToken(9), KeyError("x"))
    ((_, records, _),) = read_all(tmp_path)
    assert [r.error for r in records] == [None, "KeyError: 'x'"]
    journal.writer.failed(3.0, FirstToken(9), Untold())
    ((_, records, _),) = read_all(tmp_path)
    assert records[-1].error == "Untold"
    journal.writer.close()


def test_two_writers_do_not_share_a_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Journal(tmp_path)
    second = Journal(tmp_path)
    assert first.ok()
    assert not second.ok()
    assert f"is in use by another gateway (pid {os.getpid()})" in caplog.text
    assert "journal.directory" in caplog.text
    first.writer.close()
    second.clock.now_s += RETRY_S
    second.writer.flush()
    assert second.ok()
    second.writer.close()


def test_after_its_end_nothing_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.writer.close()
    journal.tell()
    journal.clock.now_s += RETRY_S
    journal.writer.flush()
    journal.writer.close()
    assert numbers(tmp_path) == [[]]
    assert journal.writer.dropped_total == 1


def test_what_a_writer_left_before_it_named_its_segment_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "worker-0").mkdir()
    left = tmp_path / "worker-0" / ".000001.mjl.new"
    left.write_bytes(b"MIL")
    Journal(tmp_path).writer.close()
    assert not left.exists()
    assert len(read_all(tmp_path)) == 1


def test_asking_who_writes_a_segment_does_not_disturb_its_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    path = tmp_path / "worker-0" / "000001.mjl"
    with JournalReader(path), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    journal.writer.close()
