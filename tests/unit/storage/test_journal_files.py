"""Journals are found by directory, worker and file; what cannot be read is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.errors import ConfigError, TraceError
from mileage.storage.journal_files import find_journals
from mileage.storage.journal_reader import JournalReader


def test_journals_are_found_by_directory_worker_and_file(tmp_path: Path) -> None:
    for worker in (10, 2):
        directory = tmp_path / f"worker-{worker}"
        directory.mkdir()
        for name in ("000002.mjl", "000010.mjl", "gateway.lock", "x.mjl", ".000011.mjl.new"):
            (directory / name).touch()
    names = [
        [f.path.relative_to(tmp_path).as_posix() for f in j] for j in find_journals([tmp_path])
    ]
    assert names == [
        ["worker-2/000002.mjl", "worker-2/000010.mjl"],
        ["worker-10/000002.mjl", "worker-10/000010.mjl"],
    ]
    assert len(find_journals([tmp_path / "worker-2", tmp_path / "worker-2/000002.mjl"])[0]) == 2
    assert [f.path.name for f in find_journals([tmp_path / "worker-2" / "x.mjl"])[0]] == ["x.mjl"]
    (tmp_path / "empty").mkdir()
    assert find_journals([tmp_path / "empty"]) == []
    with pytest.raises(ConfigError, match="No such file"):
        find_journals([tmp_path / "nowhere"])


def test_a_segment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"), JournalReader(tmp_path / "1.mjl"):
        pass
