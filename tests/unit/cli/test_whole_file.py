"""Files that are written: whole under their name, or as they were, whatever happens."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError, FileError
from tests.support.file_limit import file_size_limit


def write(path: Path, data: bytes, *, then: Callable[[], None] = lambda: None) -> None:
    with whole_file(path, key="OUT") as file:
        file.write(data)
        file.flush()
        then()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("before", [None, b"longer than what comes"])
def test_the_file_is_there_when_the_block_has_ended(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "out"
    if before is not None:
        path.write_bytes(before)
    with whole_file(path, key="OUT") as file:
        file.write(b"new")
        file.flush()
        assert (path.read_bytes() if path.exists() else None) == before
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("number", "ends_by", "code"),
    [
        pytest.param(signal.SIGTERM, SystemExit, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, SystemExit, 129, id="SIGHUP"),
        pytest.param(signal.SIGINT, KeyboardInterrupt, None, id="Ctrl-C"),
    ],
)
def test_a_signal_leaves_what_was_there(
    tmp_path: Path, number: signal.Signals, ends_by: type[BaseException], code: int | None
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # under nohup, say, one is ignored, and would stay so
    try:
        with pytest.raises(ends_by) as caught:
            write(path, b"half", then=lambda: signal.raise_signal(number))
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)
    assert getattr(caught.value, "code", None) == code
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with whole_file(tmp_path / "out", key="OUT") as file:
            signal.raise_signal(signal.SIGHUP)
            file.write(b"whole")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "out").read_bytes() == b"whole"


def test_another_thread_writes_without_signals(tmp_path: Path) -> None:
    thread = threading.Thread(target=write, args=(tmp_path / "out", b"x"))
    thread.start()
    thread.join()
    assert (tmp_path / "out").read_bytes() == b"x"


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(FileError, match="out: cannot be written: "), file_size_limit(1000):
        write(path, bytes(100_000))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "real", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    write(tmp_path / "out", b"")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path, linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = tmp_path / "link" if linked else pipe
    if linked:
        path.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        write(path, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("no/out", "No such file or directory", id="no directory"),
        pytest.param(".", "this is a directory", id="a directory"),
        pytest.param("file/out", "Not a directory", id="below a file"),
        pytest.param("x" * 300, "File name too long", id="too long"),
    ],
)
def test_a_place_that_cannot_be(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=expected) as caught:
        write(tmp_path / name, b"x")
    assert caught.value.key == "OUT"
    assert names(tmp_path) == ["file"]
    with pytest.raises(ConfigError):
        check_place(tmp_path / name, key="OUT")


def test_a_place_that_can_be_is_left_alone(tmp_path: Path) -> None:
    check_place(tmp_path / "out", key="OUT")
    assert names(tmp_path) == []
