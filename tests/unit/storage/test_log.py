"""LogWriter: what it acknowledges is in the file, whole; failures are counted and pass."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.core.ports import RequestLog
from mileage.storage.log import DROPPED_IDS_MAX, LogWriter
from mileage.storage.log_reader import Decoded, LogDecoder
from mileage.storage.segment import HEADER_BYTES, SegmentHeader, held_by_writer
from tests.support.file_limit import file_size_limit
from tests.support.ledger_records import BASE_UTC_NS, request, request_id, streamed, timeline


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(tmp_path: Path, clock: Clock) -> Iterator[LogWriter]:
    writer = LogWriter(tmp_path, 5, segment_bytes_max=4000, clock=clock)
    yield writer
    writer.close()


def content(path: Path) -> Decoded:
    data = path.read_bytes()
    header = SegmentHeader.decode(data)
    assert header is not None
    decoder = LogDecoder(str(path), header.marker, HEADER_BYTES)
    return decoder.feed(data[HEADER_BYTES:], final=True)


def held(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        return held_by_writer(fd)
    finally:
        os.close(fd)


def test_an_acknowledged_record_is_in_the_file_at_once(writer: LogWriter) -> None:
    assert writer.intent(request(1), BASE_UTC_NS)
    assert writer.finish(timeline(1))
    assert writer.finish(streamed(2))
    found = content(writer.path)
    assert [row[0] for row in found.intents] == [request_id(1)]
    assert [row[0] for row in found.brief] == [request_id(1)]
    assert [row[0] for row in found.detailed] == [request_id(2)]
    assert (writer.ok, writer.dropped_total, writer.last_error) == (True, 0, None)


def test_records_of_one_turn_go_out_together(writer: LogWriter) -> None:
    log: RequestLog = writer
    records = [
        log.encode_intent(request(1), BASE_UTC_NS),
        log.encode_finish(timeline(1)),
        writer.encode_finish(streamed(2)),
    ]
    assert writer.write(records)
    found = content(writer.path)
    assert (len(found.intents), len(found.brief), len(found.detailed)) == (1, 1, 1)


def test_nobody_else_can_read_the_log(writer: LogWriter) -> None:
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(writer.path.parent.stat().st_mode) == 0o700


def test_a_segment_is_held_until_the_writer_leaves_it(writer: LogWriter) -> None:
    path = writer.path
    assert held(path)
    writer.close()
    assert not held(path)
    assert content(path).damages_total == 0


def test_a_full_segment_is_closed_with_a_footer_and_the_next_one_begun(
    writer: LogWriter, tmp_path: Path
) -> None:
    first = writer.path
    while writer.path == first:
        assert writer.finish(timeline(1))
    assert not held(first)
    assert held(writer.path)
    assert 3000 < first.stat().st_size < 4100
    decoder = LogDecoder("first", writer._marker, HEADER_BYTES)
    out = decoder.feed(first.read_bytes()[HEADER_BYTES:], final=True)
    assert (decoder.ended, out.damages_total) == (True, 0)
    assert [p.name for p in sorted((tmp_path / "log").iterdir())] == [first.name, writer.path.name]
    assert first.name[:20] == writer.path.name[:20]
    assert (first.name[20:], writer.path.name[20:]) == ("000001.log", "000002.log")


def test_a_record_larger_than_a_segment_gets_one_of_its_own(writer: LogWriter) -> None:
    first = writer.path
    assert writer.finish(timeline(1, reason="r" * 9000))
    assert writer.path == first
    assert writer.finish(timeline(2))
    assert writer.path != first


def test_where_no_new_segment_can_be_made_the_full_one_is_used_on(
    writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = writer.path
    blocker = first.parent / f".{first.name.replace('000001', '000002')}.new"
    blocker.touch()
    for number in range(60):
        assert writer.finish(timeline(number))
    assert (writer.path, writer.ok) == (first, True)
    assert writer.last_error is not None
    blocker.unlink()
    for number in range(60, 70):
        assert writer.finish(timeline(number))
    assert writer.path != first
    assert len(content(first).brief) + len(content(writer.path).brief) == 70


def test_a_record_that_does_not_fit_is_taken_back_whole(writer: LogWriter) -> None:
    assert writer.finish(timeline(1))
    size = writer.path.stat().st_size
    with file_size_limit(size + 50):
        assert not writer.finish(timeline(2))
    assert writer.path.stat().st_size == size
    assert (writer.ok, writer.dropped_total) == (False, 1)
    assert str(writer.path.parent) in str(writer.last_error)


def test_a_batch_that_does_not_fit_is_taken_back_whole(writer: LogWriter) -> None:
    size = writer.path.stat().st_size
    records = [writer.encode_finish(timeline(number)) for number in range(5)]
    with file_size_limit(size + 3 * len(records[0])):
        assert not writer.write(records)
    assert writer.path.stat().st_size == size
    assert writer.dropped_total == 5


def test_while_writing_fails_calls_cost_no_system_call_until_the_next_try(
    writer: LogWriter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = writer.path.stat().st_size
    with file_size_limit(size):
        assert not writer.finish(timeline(1))
    real, tries = os.write, []

    def counted(fd: int, data: bytes) -> int:
        tries.append(len(data))
        return real(fd, data)

    monkeypatch.setattr("mileage.storage.log.os.write", counted)
    for _ in range(100):
        assert not writer.finish(timeline(2))
    assert (tries, writer.dropped_total) == ([], 101)
    clock.now_s += 0.1
    assert writer.finish(timeline(3))
    assert writer.ok
    assert [row[0] for row in content(writer.path).brief] == [request_id(3)]


def test_pauses_between_tries_grow_to_a_second(writer: LogWriter, clock: Clock) -> None:
    size = writer.path.stat().st_size
    tried: list[float] = []
    with file_size_limit(size):
        last = None
        for _ in range(500):
            writer.finish(timeline(1))
            if writer._retry_at_s != last:
                tried.append(clock.now_s)
                last = writer._retry_at_s
            clock.now_s += 0.01
    gaps = [b - a for a, b in pairwise(tried)]
    assert gaps[0] < 0.08
    assert gaps == sorted(gaps)
    assert 0.9 < gaps[-1] < 1.1


def test_ends_that_could_not_be_written_are_told_when_writing_works_again(
    writer: LogWriter, clock: Clock
) -> None:
    assert writer.intent(request(1), BASE_UTC_NS)
    assert writer.intent(request(2), BASE_UTC_NS)
    with file_size_limit(writer.path.stat().st_size):
        assert not writer.finish(timeline(1))
        assert not writer.write(
            [writer.encode_finish(streamed(2)), writer.encode_intent(request(3), BASE_UTC_NS)]
        )
    clock.now_s += 5
    assert writer.intent(request(4), BASE_UTC_NS)
    found = content(writer.path)
    ((reason, ids),) = found.dropped
    assert ids == [request_id(1), request_id(2)]
    assert "too large" in reason
    with file_size_limit(writer.path.stat().st_size):
        assert not writer.finish(timeline(4, gpu_ns=5))
    clock.now_s += 5
    assert writer.intent(request(5), BASE_UTC_NS)
    assert [ids for _, ids in content(writer.path).dropped] == [ids, [request_id(4)]]
    writer.close()
    assert content(writer.path).damages_total == 0


def test_the_memory_of_unwritten_ends_is_bounded(writer: LogWriter) -> None:
    with file_size_limit(writer.path.stat().st_size):
        for _ in range(3):
            writer.write([writer.encode_finish(timeline(1))] * DROPPED_IDS_MAX)
    assert len(writer._unwritten) == DROPPED_IDS_MAX


def test_a_disk_that_is_full_at_the_start_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    with file_size_limit(10):
        writer = LogWriter(tmp_path, 0, clock=clock)
        assert (writer.ok, writer.intent(request(1), BASE_UTC_NS)) == (False, False)
        clock.now_s += 5
        assert not writer.intent(request(1), BASE_UTC_NS)
        assert list((tmp_path / "log").iterdir()) == []
    clock.now_s += 5
    assert writer.intent(request(2), BASE_UTC_NS)
    assert writer.ok
    assert len(content(writer.path).intents) == 1
    writer.close()


def test_a_record_that_cannot_even_be_cut_off_is_left_and_the_next_segment_used(
    writer: LogWriter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    first = writer.path
    for number in range(10, 15):
        assert writer.finish(timeline(number))
    with file_size_limit(first.stat().st_size + 50), monkeypatch.context() as patch:
        patch.setattr("mileage.storage.log.os.ftruncate", refuse)
        assert not writer.finish(timeline(1))
        clock.now_s += 5
        assert writer.finish(timeline(2))
    assert writer.path != first
    assert content(first).torn_bytes == 50
    assert len(content(writer.path).brief) == 1


def test_a_closed_writer_takes_nothing(writer: LogWriter, clock: Clock) -> None:
    path = writer.path
    writer.close()
    size = path.stat().st_size
    clock.now_s += 1e9
    assert not writer.finish(timeline(1))
    assert (writer.dropped_total, path.stat().st_size) == (1, size)
    assert len(list(path.parent.iterdir())) == 1


def test_a_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="file"):
        LogWriter(tmp_path / "file", 0)


@pytest.mark.parametrize("worker", [-1, 64])
def test_a_worker_that_ids_cannot_name_is_refused(tmp_path: Path, worker: int) -> None:
    with pytest.raises(ValueError, match="worker"):
        LogWriter(tmp_path, worker)
