"""The model cache: where it is, files that are whole or absent, one writer at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mileage.core.errors import ModelFileError
from mileage.engines.embedded.model_cache import (
    atomic_file,
    cache_directory,
    check_free_space,
    exclusive,
)


class StopError(Exception):
    """Ends a block or a wait from inside."""


def stop(label: str, done_bytes: int, total_bytes: int | None) -> None:
    """A progress callback for locks that must not wait: the first word of waiting ends it."""
    raise StopError(label)


def hold(lock: Path) -> None:
    """Take and release a lock that must be free."""
    with exclusive(lock, stop):
        pass


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({"MILEAGE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a", id="own variable"),
        pytest.param({"XDG_CACHE_HOME": "/b"}, "/b/mileage", id="XDG"),
        pytest.param(
            {"XDG_CACHE_HOME": "", "MILEAGE_CACHE_DIR": ""},
            str(Path.home() / ".cache/mileage"),
            id="empty counts as unset",
        ),
    ],
)
def test_cache_directory(environ: dict[str, str], expected: str) -> None:
    assert cache_directory(environ) == Path(expected)


def test_a_file_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "model.gguf"
    with atomic_file(target) as file:
        file.write(b"all of it")
        assert not target.exists()
    assert target.read_bytes() == b"all of it"
    assert [p.name for p in target.parent.iterdir()] == ["model.gguf"]


def test_a_failed_file_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_file(tmp_path / "model.gguf") as file:
            file.write(b"half")
            raise StopError

    with pytest.raises(StopError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.gguf.tmp").write_bytes(b"a longer rest of an earlier attempt")
    with atomic_file(tmp_path / "model.gguf") as file:
        file.write(b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("model.gguf", b"new")]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.gguf.tmp").symlink_to("/dev/full")
    with (
        pytest.raises(ModelFileError, match=r"model\.gguf: .*no space left.*MILEAGE_CACHE_DIR"),
        atomic_file(tmp_path / "model.gguf") as file,
    ):
        file.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    blocked = tmp_path / "file" / "sub" / "model.gguf"
    with (
        pytest.raises(ModelFileError, match="cannot be written: Not a directory"),
        atomic_file(blocked),
    ):
        pass
    with pytest.raises(ModelFileError, match="cannot be written"):
        hold(blocked)


def test_too_little_space_is_told_before_the_work(tmp_path: Path) -> None:
    check_free_space(tmp_path / "new", 1)
    with pytest.raises(ModelFileError, match=r"MB free, .* are needed.*MILEAGE_CACHE_DIR"):
        check_free_space(tmp_path, 1 << 60)


def test_a_second_one_waits_and_says_so(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive(lock, stop), pytest.raises(StopError, match="another process"):
        hold(lock)
    hold(lock)


def test_a_waiting_one_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    lock, order = tmp_path / "lock", []
    waiting = threading.Event()

    def progress(label: str, done_bytes: int, total_bytes: int | None) -> None:
        waiting.set()

    def second() -> None:
        with exclusive(lock, progress):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(lock, stop):
        thread.start()
        assert waiting.wait(60)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
