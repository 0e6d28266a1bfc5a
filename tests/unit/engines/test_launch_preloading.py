"""Reading ahead that hangs keeps nobody waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from mileage.core.errors import FileError
from mileage.engines.launch.preload import Preloaded
from mileage.engines.launch.preloading import PreloadSlot

ALL = Preloaded(files=1, bytes=7, bytes_total=7, seconds=0.1)


def nothing_missing(model: str) -> Sequence[Path]:
    return [Path(model)]


def run(slot: PreloadSlot, *, needed: bool = True) -> Preloaded:
    async def once() -> Preloaded:
        unneeded = asyncio.Event()
        if not needed:
            unneeded.set()
        return await slot.run(unneeded)

    return asyncio.run(once())


def test_what_was_read_is_told() -> None:
    def read(paths: Sequence[Path], *, reserve_bytes: int, stop: threading.Event) -> Preloaded:
        assert (paths, reserve_bytes, stop.is_set()) == ([Path("m")], 3, False)
        return ALL

    slot = PreloadSlot("m", reserve_bytes=3, read=read, find=nothing_missing)
    assert run(slot) == ALL
    assert run(slot) == ALL


def test_a_read_that_hangs_is_left_and_none_begun_beside_it() -> None:
    back, entered, begun = threading.Event(), threading.Event(), []

    def read(paths: Sequence[Path], *, reserve_bytes: int, stop: threading.Event) -> Preloaded:
        begun.append(threading.current_thread())
        entered.set()
        back.wait()  # a mount that is gone heeds no `stop`
        return ALL

    slot = PreloadSlot("/mnt/m", reserve_bytes=0, read=read, find=nothing_missing, leave_s=0.01)
    first = run(slot, needed=False)
    assert "a read of /mnt/m does not return" in (first.stopped or "")
    again = run(slot)
    assert "still hangs" in (again.stopped or "")
    assert entered.wait(60.0)
    assert len(begun) == 1
    assert begun[0].daemon  # the interpreter does not wait for it either
    back.set()
    begun[0].join()
    assert run(slot) == ALL


def test_looking_for_the_files_may_hang_too() -> None:
    back = threading.Event()

    def find(model: str) -> Sequence[Path]:
        back.wait()
        raise FileError(model, "is no file")

    slot = PreloadSlot("m", reserve_bytes=0, find=find, leave_s=0.01)
    assert "does not return" in (run(slot, needed=False).stopped or "")
    back.set()
    while "still hangs" in (found := run(slot)).stopped:  # type: ignore[operator]
        pass
    assert found.stopped == "m: is no file"


def test_one_that_fails_is_no_hang() -> None:
    def find(model: str) -> Sequence[Path]:
        raise RuntimeError("Could not determine home directory.")

    slot = PreloadSlot("~nobody/m", reserve_bytes=0, find=find, leave_s=60.0)
    for _ in range(2):
        assert run(slot, needed=False).stopped == "it failed: Could not determine home directory."


def test_it_is_told_to_stop_when_nobody_needs_it() -> None:
    def read(paths: Sequence[Path], *, reserve_bytes: int, stop: threading.Event) -> Preloaded:
        stop.wait()
        return ALL

    slot = PreloadSlot("m", reserve_bytes=0, read=read, find=nothing_missing, leave_s=60.0)
    assert run(slot, needed=False) == ALL
