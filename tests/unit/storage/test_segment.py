"""Segments: names and headers tell whose they are; a damaged header is no header."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.segment import (
    HEADER_BYTES,
    SegmentHeader,
    SegmentName,
    create_segment,
    log_directory,
    read_header,
    remove_leftovers,
)
from tests.support.file_limit import file_size_limit

NAME = SegmentName(1_764_428_000_000_000, 7, 3)
HEADER = SegmentHeader(name=NAME, marker=0xFEDCBA98, pid=4711)


def test_a_name_is_read_back() -> None:
    assert str(NAME) == "1764428000000000-07-000003.log"
    assert SegmentName.parse(str(NAME)) == NAME


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(".1764428000000000-07-000003.log.new", id="not named yet"),
        pytest.param("1764428000000000-07-000003.log.bak", id="a copy"),
        pytest.param("1764428000000000-07-3.log", id="short"),
        pytest.param("", id="empty"),
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert SegmentName.parse(name) is None


def test_names_sort_by_run_worker_and_sequence() -> None:
    names = [
        SegmentName(2, 0, 1),
        SegmentName(1, 2, 9),
        SegmentName(1, 2, 10),
        SegmentName(1, 3, 1),
    ]
    assert sorted(names) == [*names[1:], names[0]]
    assert sorted(map(str, names)) == list(map(str, sorted(names)))


def test_a_header_is_read_back() -> None:
    data = HEADER.encode()
    assert len(data) == HEADER_BYTES
    assert SegmentHeader.decode(data + b"records") == HEADER


@pytest.mark.parametrize("index", range(HEADER_BYTES))
def test_any_damaged_byte_of_a_header_is_noticed(index: int) -> None:
    data = bytearray(HEADER.encode())
    data[index] ^= 1
    assert SegmentHeader.decode(bytes(data)) is None


def test_a_short_header_is_none() -> None:
    assert SegmentHeader.decode(HEADER.encode()[:-1]) is None
    assert SegmentHeader.decode(b"") is None


def test_a_new_segment_begins_with_its_header(tmp_path: Path) -> None:
    fd = create_segment(tmp_path, HEADER)
    os.close(fd)
    fd = os.open(tmp_path / str(NAME), os.O_RDONLY)
    assert read_header(fd) == HEADER
    os.close(fd)
    assert os.listdir(tmp_path) == [str(NAME)]


def test_a_segment_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with file_size_limit(HEADER_BYTES - 1), pytest.raises(OSError, match="space") as failure:
        create_segment(tmp_path, HEADER)
    assert failure.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


def test_only_old_leftovers_are_removed(tmp_path: Path) -> None:
    for name in (f".{NAME}.new", str(NAME)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(0, 1_000_000_000_000))
    assert remove_leftovers(tmp_path, 1_059_000_000_000) == 0
    assert remove_leftovers(tmp_path, 1_061_000_000_000) == 1
    assert os.listdir(tmp_path) == [str(NAME)]


def test_the_log_directory_is_made_private(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "state" / "mileage")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert log_directory(tmp_path / "state" / "mileage") == path


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(LedgerError, match=str(tmp_path / "log")):
        log_directory(tmp_path)
