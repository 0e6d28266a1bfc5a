"""Weights read ahead: which files, how much, and why not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mileage.core.errors import FileError
from mileage.engines.launch.preload import Preloaded, memory_available_bytes, preload
from mileage.engines.launch.weight_files import weight_files

MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for name in ("b.safetensors", "a.safetensors", "old.bin", "config.json"):
        (tmp_path / name).write_bytes(bytes(3 * MIB))
    return tmp_path


def read(
    paths: list[Path], *available: int, reserve: int = 0, stop: bool = False, look: int = MIB
) -> Preloaded:
    seen = iter(available)
    event = threading.Event()
    if stop:
        event.set()
    return preload(
        paths,
        reserve_bytes=reserve,
        stop=event,
        available=lambda: next(seen, available[-1]),
        look_bytes=look,
    )


def test_files_of_a_directory(model: Path) -> None:
    names = [path.name for path in weight_files(str(model), {})]
    assert names == ["a.safetensors", "b.safetensors"]
    assert weight_files(str(model / "old.bin"), {}) == [model / "old.bin"]


def test_files_of_the_hubs_cache(tmp_path: Path) -> None:
    own = tmp_path / "hub" / "models--Owner--Name"
    snapshot = own / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (own / "refs").mkdir()
    (own / "refs" / "main").write_text("abc")
    (snapshot / "model.safetensors").write_bytes(b"x")
    environ = {"HF_HOME": str(tmp_path)}
    assert weight_files("Owner/Name", environ) == [snapshot / "model.safetensors"]
    with pytest.raises(FileError, match="is not in"):
        weight_files("Owner/Other", environ)
    with pytest.raises(FileError, match="has no weights"):
        weight_files(str(own), environ)


def test_all_is_read(model: Path) -> None:
    found = read(weight_files(str(model), {}), 100 * MIB)
    assert (found.files, found.bytes, found.bytes_total) == (2, 6 * MIB, 6 * MIB)
    assert found.stopped is None


def test_what_does_not_fit_is_not_begun(model: Path) -> None:
    found = read(weight_files(str(model), {}), 8 * MIB, reserve=3 * MIB)
    assert found.bytes == 0
    assert found.stopped is not None
    assert "do not fit" in found.stopped


def test_it_stops_at_the_reserve_and_when_told(model: Path) -> None:
    paths = weight_files(str(model), {})
    found = read(paths, 100 * MIB, MIB, reserve=2 * MIB)
    assert found.bytes == 3 * MIB
    assert found.stopped is not None
    assert "are left" in found.stopped
    stopped = read(paths, 100 * MIB, stop=True)
    assert stopped.files == 0
    assert stopped.stopped is not None


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    found = read([tmp_path / "none"], 100 * MIB)
    assert found.stopped is not None
    assert "cannot be read" in found.stopped
    assert "No such file" in found.stopped


def test_the_memory_of_this_machine() -> None:
    assert memory_available_bytes() > 0
