"""Who of several launches starts what they share, and who ends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.launch import mps_share
from mileage.engines.launch.mps_share import MpsShare, end_if_last
from mileage.engines.launch.path_lock import PathLock


class Daemon:
    """Up or not; `start` is what a launch does to have it up."""

    def __init__(self) -> None:
        self.up, self.ended = False, 0

    def start(self) -> tuple[str, bool]:
        started, self.up = not self.up, True
        return "found", started

    def end(self) -> None:
        self.up = False
        self.ended += 1


def test_the_last_one_ends_it(tmp_path: Path) -> None:
    daemon = Daemon()
    first, second = MpsShare(str(tmp_path)), MpsShare(str(tmp_path))
    assert first.enter(daemon.start) == ("found", True)
    assert second.enter(daemon.start) == ("found", True)
    assert not end_if_last(first.descriptor, daemon.end)
    assert daemon.up
    first.close()
    assert end_if_last(second.descriptor, daemon.end)
    assert (daemon.up, daemon.ended) == (False, 1)
    third = MpsShare(str(tmp_path))
    assert third.enter(daemon.start) == ("found", True)
    assert end_if_last(third.descriptor, daemon.end)


def test_somebody_else_s_is_nobody_s_to_end(tmp_path: Path) -> None:
    daemon = Daemon()
    daemon.up = True
    share = MpsShare(str(tmp_path))
    assert share.enter(daemon.start) == ("found", False)
    share.close()


def test_what_killed_launches_have_left_is_ended_by_the_next(tmp_path: Path) -> None:
    daemon = Daemon()
    killed = MpsShare(str(tmp_path))
    killed.enter(daemon.start)
    killed.close()  # as the kernel does
    share = MpsShare(str(tmp_path))
    assert share.enter(daemon.start) == ("found", True)
    assert end_if_last(share.descriptor, daemon.end)
    assert not daemon.up


def test_one_that_keeps_its_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_share, "_WAIT_S", 0.0)
    first, second = MpsShare(str(tmp_path)), MpsShare(str(tmp_path))

    def start() -> tuple[str, bool]:
        with pytest.raises(EngineError, match=r"another launch .* keeps its lock"):
            second.enter(lambda: ("", True))
        return "found", True

    first.enter(start)
    first.close()
    second.close()


def test_a_path_is_one_launch_s_alone(tmp_path: Path) -> None:
    lock = PathLock(tmp_path / "x", key="--x")
    with pytest.raises(ConfigError, match=rf"another launch \(pid {os.getpid()}\) has this"):
        PathLock(tmp_path / "x", key="--x")
    lock.release()
    lock.release()
    PathLock(tmp_path / "x", key="--x").release()
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        PathLock(tmp_path / "none" / "x", key="--x")
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be opened"):
        MpsShare(str(tmp_path / "file"))
