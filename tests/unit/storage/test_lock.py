"""DirectoryLock: one holder at a time, who is named to the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.lock import DirectoryLock


def test_the_second_holder_is_told_the_directory_the_first_and_the_setting(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path, setting="some.key")
    with pytest.raises(LedgerError, match=rf"{tmp_path}: .*\(pid {os.getpid()}\).* some\.key"):
        DirectoryLock(tmp_path, setting="some.key")
    first.release()


def test_a_released_lock_can_be_taken(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path, setting="some.key")
    first.release()
    first.release()
    DirectoryLock(tmp_path, setting="some.key").release()


def test_an_old_lock_file_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").write_text("12345678\n")
    lock = DirectoryLock(tmp_path, setting="some.key")
    assert (tmp_path / "gateway.lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="nowhere"):
        DirectoryLock(tmp_path / "nowhere", setting="some.key")
