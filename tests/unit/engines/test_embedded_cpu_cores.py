"""The number of threads for llama.cpp: cores, not hardware threads, within what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mileage.engines.embedded.cpu_cores import cores


@pytest.mark.parametrize(
    ("affinity", "siblings", "quota", "expected"),
    [
        pytest.param({0, 1, 2, 3}, ["0", "1", "2", "3"], "max 100000", 4, id="four cores"),
        pytest.param(
            {0, 1, 2, 3}, ["0,2", "1,3", "0,2", "1,3"], "max 100000", 2, id="two of two threads"
        ),
        pytest.param({1, 3}, ["0,2", "1,3", "0,2", "1,3"], None, 1, id="pinned to one core"),
        pytest.param({0, 1, 2, 3}, [], None, 4, id="unknown topology: each counts"),
        pytest.param({0, 1, 2, 3}, [], "150000 100000", 2, id="a quota of a core and a half"),
        pytest.param({0, 1}, [], "50000 100000", 1, id="a quota of half a core"),
        pytest.param({0, 1}, [], "900000 100000", 2, id="a quota above the cores"),
        pytest.param({0, 1}, [], "nonsense", 2, id="an unreadable quota"),
    ],
)
def test_cores(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    affinity: set[int],
    siblings: list[str],
    quota: str | None,
    expected: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity)
    for cpu, shared in enumerate(siblings):
        directory = tmp_path / f"cpu{cpu}" / "topology"
        directory.mkdir(parents=True)
        (directory / "core_cpus_list").write_text(shared + "\n")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota + "\n")
    assert cores(tmp_path, tmp_path / "cpu.max") == expected


def test_this_machine_has_a_core() -> None:
    assert 1 <= cores() <= len(os.sched_getaffinity(0))
