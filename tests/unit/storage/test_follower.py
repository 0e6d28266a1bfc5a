"""LogFollower: each end is stored once, what has none is found, segments go when not needed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mileage.core.timeline import RequestTimeline
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from mileage.storage.segment import (
    FORMAT_VERSION,
    SegmentHeader,
    SegmentName,
    held_by_writer,
)
from mileage.storage.tail import PATIENCE, READ_BYTES
from tests.support.file_limit import file_size_limit
from tests.support.ledger_directory import drain, kill, segments, stored
from tests.support.ledger_records import BASE_UTC_NS, request, request_id, streamed, timeline

Open = Callable[..., LogWriter]


def test_ends_are_stored_while_the_writer_lives(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer()
    for number, end in enumerate([timeline(0), streamed(1)]):
        writer.intent(request(number), BASE_UTC_NS)
        writer.finish(end)
    writer.finish(timeline(2, outcome="rejected", status=404))
    writer.intent(request(3), BASE_UTC_NS)
    drain(feeder)
    expected = [timeline(0), streamed(1), timeline(2, outcome="rejected", status=404)]
    assert stored(tmp_path) == {end.id: end for end in expected}
    status = feeder.status()
    assert (status.rows_total, status.open_intents, status.lag_bytes) == (3, 1, 0)
    assert segments(tmp_path) == [writer.path.name]


def test_a_writer_that_died_leaves_its_open_requests_as_lost(
    tmp_path: Path, feeder: Feeder, open_writer: Open, caplog: pytest.LogCaptureFixture
) -> None:
    writer = open_writer(worker=2)
    for number in range(3):
        writer.intent(request(number, 2, stream=True), BASE_UTC_NS + number)
    writer.finish(timeline(1, 2))
    drain(feeder)
    assert feeder.status().lost_total == 0
    kill(writer)
    with caplog.at_level(logging.WARNING):
        drain(feeder)
    assert "2 requests have no end: stored as lost" in caplog.text
    lost = stored(tmp_path)[request_id(2, 2)]
    assert lost == RequestTimeline(
        id=request_id(2, 2),
        tenant="team-2",
        model="smollm2",
        endpoint="chat",
        stream=True,
        arrived_at_utc_ns=BASE_UTC_NS + 2,
        outcome="lost",
        status=None,
        reason="gateway_died",
    )
    assert (feeder.status().lost_total, feeder.status().rows_total) == (2, 3)
    assert segments(tmp_path) == []


def test_what_an_earlier_gateway_left_is_found_at_the_start(
    tmp_path: Path, open_writer: Open
) -> None:
    for worker in (0, 1):
        writer = open_writer(worker)
        for number in range(10):
            writer.intent(request(number, worker), BASE_UTC_NS)
            if number != 7:
                writer.finish(timeline(number, worker))
        kill(writer)
    feeder = Feeder(tmp_path)
    drain(feeder)
    outcomes = [t.outcome for t in stored(tmp_path).values()]
    assert (outcomes.count("ok"), outcomes.count("lost")) == (18, 2)
    assert segments(tmp_path) == []
    feeder.stop()


def test_a_replay_stores_nothing_twice(tmp_path: Path, open_writer: Open) -> None:
    writer = open_writer()
    for number in range(20):
        writer.intent(request(number), BASE_UTC_NS)
        writer.finish(timeline(number))
    writer.intent(request(20), BASE_UTC_NS)
    for _ in range(2):
        feeder = Feeder(tmp_path)
        drain(feeder)
        feeder.stop()
    writer.finish(timeline(20))
    kill(writer)
    feeder = Feeder(tmp_path)
    drain(feeder)
    status = feeder.status()
    assert (status.repeated_total, status.conflicting_total, status.lost_total) == (20, 0, 0)
    assert stored(tmp_path) == {request_id(n): timeline(n) for n in range(21)}
    feeder.stop()


def test_a_segment_stays_until_each_of_its_requests_has_its_end_stored(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer(segment_bytes_max=2000)
    first = writer.path
    writer.intent(request(0), BASE_UTC_NS)
    number = 0
    while writer._sequence < 4:
        number += 1
        writer.intent(request(number), BASE_UTC_NS)
        writer.finish(timeline(number))
    drain(feeder)
    assert segments(tmp_path) == [first.name, writer.path.name]
    writer.finish(timeline(0))
    drain(feeder)
    assert segments(tmp_path) == [writer.path.name]
    writer.close()
    drain(feeder)
    assert segments(tmp_path) == []
    assert len(stored(tmp_path)) == number + 1
    assert feeder.status().lost_total == 0


def test_a_kept_segment_makes_no_stored_request_lost_at_the_next_start(
    tmp_path: Path, open_writer: Open
) -> None:
    writer = open_writer(segment_bytes_max=2000)
    writer.intent(request(0), BASE_UTC_NS)
    ends = {}
    for number in range(1, 60):
        writer.intent(request(number), BASE_UTC_NS)
        if number > 1:  # ends one request late, so that intent and end may lie in two segments
            writer.finish(timeline(number - 1))
            ends[request_id(number - 1)] = timeline(number - 1)
    feeder = Feeder(tmp_path)
    drain(feeder)
    feeder.stop()
    kill(writer)
    feeder = Feeder(tmp_path)
    drain(feeder)
    found = stored(tmp_path)
    assert {t.id for t in found.values() if t.outcome == "lost"} == {request_id(0), request_id(59)}
    assert {i: t for i, t in found.items() if t.outcome == "ok"} == ends
    assert (feeder.status().lost_total, feeder.status().conflicting_total) == (2, 0)
    assert segments(tmp_path) == []
    feeder.stop()


def test_ends_that_could_not_be_written_become_lost_and_hold_no_segment(
    tmp_path: Path, feeder: Feeder
) -> None:
    now_s = [0.0]
    writer = LogWriter(tmp_path, 0, clock=lambda: now_s[0])
    writer.intent(request(0), BASE_UTC_NS)
    with file_size_limit(writer.path.stat().st_size):
        assert not writer.finish(timeline(0))
    now_s[0] = 9.0
    writer.intent(request(1), BASE_UTC_NS)
    writer.finish(timeline(1))
    drain(feeder)
    status = feeder.status()
    assert (status.unwritten_total, status.lost_total, status.open_intents) == (1, 1, 0)
    assert stored(tmp_path)[request_id(0)].reason == "end_not_written"
    writer.close()


def test_a_torn_record_of_a_dead_writer_is_no_damage(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer()
    writer.intent(request(0), BASE_UTC_NS)
    os.write(writer._fd, writer.encode_finish(timeline(0))[:30])
    kill(writer)
    drain(feeder)
    assert stored(tmp_path)[request_id(0)].outcome == "lost"
    assert (feeder.status().damaged_total, segments(tmp_path)) == (0, [])


def test_a_dead_writers_segment_is_read_to_its_end_however_long(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer(segment_bytes_max=1 << 24)
    count = 2 * READ_BYTES // len(writer.encode_finish(timeline(0)))
    assert writer.write([writer.encode_finish(timeline(number)) for number in range(count)])
    kill(writer)
    drain(feeder)
    assert len(stored(tmp_path)) == count
    assert (feeder.status().damaged_total, segments(tmp_path)) == (0, [])


def test_a_record_that_is_longer_than_a_read_is_read(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer()
    long = streamed(1, token_times=(1_000_000, 1) * 20_000)
    assert len(writer.encode_finish(long)) > 2 * READ_BYTES
    ends = [timeline(0), long, timeline(2)]
    for end in ends:
        assert writer.finish(end)
    drain(feeder)
    assert stored(tmp_path) == {end.id: end for end in ends}
    assert feeder.status().lag_bytes == 0


def test_what_a_writer_wrote_last_is_read_although_it_died_meanwhile(
    tmp_path: Path, feeder: Feeder, open_writer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer()
    writer.intent(request(0), BASE_UTC_NS)
    drain(feeder)

    def dies_now(fd: int) -> bool:
        if writer._fd >= 0:
            writer.finish(timeline(0))
            kill(writer)
        return held_by_writer(fd)

    monkeypatch.setattr("mileage.storage.tail.held_by_writer", dies_now)
    drain(feeder)
    assert stored(tmp_path) == {request_id(0): timeline(0)}


def test_no_writer_is_given_up_while_one_of_the_segments_cannot_be_opened(
    tmp_path: Path, feeder: Feeder, open_writer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(segment_bytes_max=300)
    writer.intent(request(0), BASE_UTC_NS)
    drain(feeder)
    while writer._sequence < 2:
        writer.intent(request(1), BASE_UTC_NS)

    def refuse(path: Path, name: SegmentName) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("mileage.storage.follower.SegmentTail", refuse)
        for _ in range(3):
            with pytest.raises(OSError, match="Too many"):
                feeder.step()
    writer.finish(timeline(0))
    drain(feeder)
    assert stored(tmp_path) == {request_id(0): timeline(0)}
    assert feeder.status().lost_total == 0


def test_a_record_that_is_half_written_is_waited_for(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer()
    record = writer.encode_finish(timeline(0))
    for part in (record[:30], record[30:]):
        assert stored(tmp_path) == {}
        os.write(writer._fd, part)
        drain(feeder)
    assert list(stored(tmp_path)) == [request_id(0)]


def test_bytes_that_a_writer_takes_back_are_no_damage(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer()
    size = writer.path.stat().st_size
    os.write(writer._fd, b"\xff" * 500)
    for _ in range(PATIENCE):
        drain(feeder)
    os.ftruncate(writer._fd, size)
    writer.finish(timeline(0))
    drain(feeder)
    assert (len(stored(tmp_path)), feeder.status().damaged_total) == (1, 0)


def test_bytes_that_stay_bad_are_skipped_and_reported(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    writer = open_writer()
    os.write(writer._fd, b"\xff" * 500)
    writer.finish(timeline(0))
    for _ in range(PATIENCE + 2):
        drain(feeder)
    status = feeder.status()
    assert (len(stored(tmp_path)), status.damaged_total) == (1, 1)
    assert f"{writer.path}:1: a damaged record at byte 36" in str(status.damage)


def test_a_file_that_is_no_segment_is_reported_and_kept(
    tmp_path: Path, feeder: Feeder, open_writer: Open
) -> None:
    path = tmp_path / "log" / str(SegmentName(1_700_000_000_000_000, 0, 1))
    path.write_bytes(b"\0" * 100)
    writer = open_writer()
    writer.finish(timeline(0))
    drain(feeder)
    drain(feeder)
    assert len(stored(tmp_path)) == 1
    assert feeder.status().damaged_total == 1
    assert str(path) in str(feeder.status().damage)
    assert path.exists()


def test_a_segment_of_a_newer_format_is_reported_and_kept(tmp_path: Path, feeder: Feeder) -> None:
    name = SegmentName(1_700_000_000_000_000, 0, 1)
    header = SegmentHeader(name=name, marker=1, pid=1, version=FORMAT_VERSION + 1)
    path = tmp_path / "log" / str(name)
    path.write_bytes(header.encode() + b"?" * 50)
    drain(feeder)
    assert f"format version {FORMAT_VERSION + 1}" in str(feeder.status().damage)
    assert path.exists()


def test_an_empty_segment_as_a_power_cut_leaves_it_is_removed(
    tmp_path: Path, feeder: Feeder
) -> None:
    (tmp_path / "log" / str(SegmentName(1_700_000_000_000_000, 0, 1))).touch()
    drain(feeder)
    assert (segments(tmp_path), feeder.status().damaged_total) == ([], 0)
