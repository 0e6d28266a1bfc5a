"""The file of `--ready-file`: of one launch alone, and never a file of somebody else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mileage.cli.ready_file import ReadyFile
from mileage.core.errors import ConfigError
from mileage.engines.launch.events import Ready
from mileage.engines.launch.start_watch import StartTimes

READY = Ready(after_s=1.0, model="m", times=StartTimes())


def test_it_is_there_from_write_to_close_and_nothing_after_it(tmp_path: Path) -> None:
    file = ReadyFile(tmp_path / "ready")
    assert not (tmp_path / "ready").exists()
    file.write(READY)
    assert json.loads((tmp_path / "ready").read_text())["event"] == "ready"
    file.remove()
    assert not (tmp_path / "ready").exists()
    file.write(READY)
    file.close()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_second_launch_is_told_who_has_it_and_leaves_it(tmp_path: Path) -> None:
    first = ReadyFile(tmp_path / "ready")
    first.write(READY)
    (tmp_path / "link").symlink_to(tmp_path / "ready")
    for name in ("ready", "link"):
        with pytest.raises(ConfigError, match=rf"another launch \(pid {os.getpid()}\) has this"):
            ReadyFile(tmp_path / name)
    assert (tmp_path / "ready").exists()
    first.close()
    ReadyFile(tmp_path / "ready").close()


def test_what_a_killed_launch_left_is_removed(tmp_path: Path) -> None:
    first = ReadyFile(tmp_path / "ready")
    first.write(READY)
    left = (tmp_path / "ready").read_bytes()
    first.close()
    (tmp_path / "ready").write_bytes(left)
    (tmp_path / ".ready.lock").write_text("1\n")
    second = ReadyFile(tmp_path / "ready")
    assert not (tmp_path / "ready").exists()
    second.close()


@pytest.mark.parametrize("text", ["", "my thesis\n", '{"event":"ended"}', "[1]"])
def test_a_file_of_somebody_else_is_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / "ready").write_text(text)
    with pytest.raises(ConfigError, match="written by no launch"):
        ReadyFile(tmp_path / "ready")
    assert [each.name for each in tmp_path.iterdir()] == ["ready"]
    assert (tmp_path / "ready").read_text() == text


def test_a_device_is_no_ready_file() -> None:
    with pytest.raises(ConfigError):
        ReadyFile(Path("/dev/null"))
    assert Path("/dev/null").exists()
