"""Standard output that cannot be written: one error, and none again when the interpreter ends."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from mileage.cli.told_stdout import TellingFile
from mileage.core.errors import FileError

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this machine")
def test_a_full_disk_is_told_once() -> None:
    descriptor = os.open(FULL, os.O_WRONLY)
    try:
        out = io.TextIOWrapper(io.BufferedWriter(TellingFile(descriptor, "the output")))
        out.write("result\n")
        with pytest.raises(FileError, match=r"^the output: cannot be written \(No space left"):
            out.flush()
        out.write("more\n")
        out.flush()
        out.close()
    finally:
        os.close(descriptor)


def test_a_reader_that_has_gone_is_no_error_of_ours() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        file = TellingFile(writing, "the output")
        with pytest.raises(BrokenPipeError):
            file.write(b"result\n")
        assert file.write(b"more\n") == 5
        file.close()
    finally:
        os.close(writing)


def test_what_can_be_written_is(tmp_path: Path) -> None:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with io.TextIOWrapper(io.BufferedWriter(TellingFile(descriptor, "the output"))) as out:
            out.write("result\n")
    finally:
        os.close(descriptor)
    assert path.read_text() == "result\n"
