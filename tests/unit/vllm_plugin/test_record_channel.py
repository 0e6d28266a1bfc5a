"""Records reach files whole or not at all, and what is lost is told; the disk may fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mileage.vllm_plugin.record_channel import ChannelLimits, RecordChannel

QUICK = ChannelLimits(interval_s=0.001)


def lost(began_ns: int, ended_ns: int, records: int) -> bytes:
    return f"<{began_ns}..{ended_ns} lost {records}>".encode()


class Channels:
    """Makes channels into one directory; none is left running."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._made: list[RecordChannel] = []

    def make(self, limits: ChannelLimits = QUICK, *, started: bool = True) -> RecordChannel:
        channel = RecordChannel(self.directory, "a", ".steps", lost, limits)
        self._made.append(channel)
        if started:
            channel.start()
        return channel

    def texts(self) -> list[str]:
        """What is in the files, in the order of their names."""
        return [path.read_text() for path in sorted(self.directory.glob("a@*.steps"))]

    def stop(self) -> None:
        for channel in self._made:
            channel.stop()


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[Channels]:
    made = Channels(tmp_path / "steps")
    yield made
    made.stop()


def test_all_is_written_in_order_when_it_stops(channels: Channels) -> None:
    channel = channels.make()
    for number in range(100):
        channel.put(b"%d," % number, number, number + 1)
    channel.stop()
    assert "".join(channels.texts()) == "".join(f"{n}," for n in range(100))
    assert channel.dropped_total == 0


def test_a_full_queue_drops_and_says_so(channels: Channels) -> None:
    channel = channels.make(ChannelLimits(waiting_bytes=10, interval_s=0.001), started=False)
    for number in range(5):
        channel.put(b"12345", number, number + 1)
    assert channel.refused_total == 3
    channel.start()
    channel.stop()
    channel.put(b"12345", 5, 6)
    assert channels.texts() == ["1234512345"]
    again = channels.make(ChannelLimits(waiting_bytes=10, interval_s=0.001), started=False)
    again.put(b"0123456789", 0, 1)
    again.put(b"refused", 1, 2)
    again.put(b"refused too", 2, 3)
    again._look()
    again.put(b"taken", 3, 4)
    again._look()
    assert channels.texts()[-1] == "0123456789<1..3 lost 2>taken"


def test_files_are_rotated_and_the_oldest_removed(channels: Channels) -> None:
    other = channels.directory / "ab@1.steps"
    other.parent.mkdir()
    other.write_bytes(b"of another replica" * 10)
    channel = channels.make(ChannelLimits(file_bytes=10, files_bytes=30), started=False)
    for number in range(6):
        channel.put(b"%010d" % number, number, number + 1)
        channel._look()
    assert channels.texts() == [f"{n:010d}" for n in (3, 4, 5)]
    assert other.exists()


def test_a_file_that_was_removed_is_left_for_another(channels: Channels) -> None:
    channel = channels.make(started=False)
    channel.put(b"first", 0, 1)
    channel._look()
    (path,) = channels.directory.glob("*.steps")
    path.unlink()
    channel.put(b"second", 1, 2)
    channel._look()
    assert channels.texts() == ["second"]


def test_an_old_file_that_another_process_removes_costs_nothing(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = channels.make(ChannelLimits(file_bytes=1), started=False)
    channel.put(b"first", 0, 1)
    channel._look()
    (gone,) = channels.directory.glob("*.steps")
    stat = Path.stat

    def removed_meanwhile(self: Path, **kwargs: bool) -> os.stat_result:
        if self == gone:
            self.unlink(missing_ok=True)
        return stat(self, **kwargs)

    monkeypatch.setattr(Path, "stat", removed_meanwhile)
    channel.put(b"second", 1, 2)
    channel._look()
    monkeypatch.undo()
    assert channels.texts() == ["second"]
    assert (channel.dropped_total, channel.error) == (0, None)


def test_a_full_disk_leaves_whole_records_and_is_survived(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = channels.make(started=False)
    channel.put(b"first.", 0, 1)
    channel._look()
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 3:
            return write(file, data[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for number in (1, 2):
        channel.put(b"second.", number, number + 1)
        channel._look()
    assert channels.texts() == ["first."]
    assert channel.failed_total == 2
    assert "No space left" in str(channel.error)
    monkeypatch.undo()
    channel.put(b"third.", 3, 4)
    channel._look()
    assert channels.texts() == ["first.<1..3 lost 2>third."]
    assert str(channel.error) == "None"
    assert channel.dropped_total == 2


def test_a_place_that_cannot_be_made_is_survived(channels: Channels) -> None:
    channels.directory.write_text("a file")
    channel = channels.make()
    channel.put(b"first", 0, 1)
    channel.stop()
    assert channel.failed_total == 1
    channels.directory.unlink()
