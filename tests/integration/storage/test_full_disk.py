"""A disk that is really full: the errors are clear, work goes on, and afterwards nothing lacks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from tests.support.ledger_directory import kill, segments, stored
from tests.support.ledger_records import BASE_UTC_NS, request, request_id, timeline

DISK_BYTES = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill")
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size={DISK_BYTES},mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(disk: Path, left_bytes: int = 0) -> Path:
    """Take all space but `left_bytes`."""
    path = disk / "ballast"
    with path.open("wb", buffering=0) as file:
        free_bytes = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        os.posix_fallocate(file.fileno(), 0, free_bytes - left_bytes)
    return path


def eventually(condition: str, feeder: Feeder, timeout_s: float = 60.0) -> None:
    """Wait until the status has an error, or none and no lag."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        status = feeder.status()
        fed = status.error is None and status.lag_bytes == 0 and status.pending_rows == 0
        if (status.error is not None) if condition == "fails" else fed:
            return
        assert time.monotonic() < deadline_s, status
        time.sleep(0.01)


def test_a_full_disk_stops_the_records_but_not_the_process_and_passes(disk: Path) -> None:
    now_s = [0.0]
    writer = LogWriter(disk, 0, segment_bytes_max=1 << 18, clock=lambda: now_s[0])
    feeder = Feeder(disk, interval_s=0.01)
    feeder.start()
    intents, ends, refused = set(), set(), 0

    def serve(numbers: range) -> None:
        nonlocal refused
        for number in numbers:
            now_s[0] += 0.001
            if writer.intent(request(number), BASE_UTC_NS):
                intents.add(request_id(number))
            if writer.finish(timeline(number)):
                ends.add(request_id(number))
            else:
                refused += 1

    serve(range(1000))
    eventually("feeds", feeder)
    ballast = fill(disk, left_bytes=100_000)
    serve(range(1000, 6000))
    assert refused > 1000
    assert not writer.ok
    assert "No space left on device" in str(writer.last_error)
    eventually("fails", feeder)
    assert "ledger.sqlite: " in str(feeder.status().error)
    assert "full" in str(feeder.status().error)

    ballast.unlink()
    now_s[0] += 10
    serve(range(6000, 7000))
    assert {request_id(n) for n in range(6000, 7000)} <= ends
    eventually("feeds", feeder)
    kill(writer)
    assert feeder.stop(timeout_s=60)

    found = stored(disk)
    assert {i for i, t in found.items() if t.outcome == "ok"} == ends
    assert {i for i, t in found.items() if t.outcome == "lost"} == intents - ends
    status = feeder.status()
    assert (status.damaged_total, status.conflicting_total) == (0, 0)
    assert status.unwritten_total == refused
    assert segments(disk) == []


def test_a_gateway_starts_on_a_full_disk_and_records_when_there_is_room(disk: Path) -> None:
    (disk / "log").mkdir()
    ballast = fill(disk)
    now_s = [0.0]
    feeder = Feeder(disk, interval_s=0.01)
    assert "ledger.sqlite" in str(feeder.status().error)
    feeder.start()
    writer = LogWriter(disk, 0, clock=lambda: now_s[0])
    assert not writer.finish(timeline(0))
    ballast.unlink()
    now_s[0] += 10
    assert writer.finish(timeline(1))
    eventually("feeds", feeder)
    writer.close()
    assert feeder.stop(timeout_s=60)
    assert list(stored(disk)) == [request_id(1)]
