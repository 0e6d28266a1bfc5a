"""Fragmentation of free memory: the share of it in pieces below 2 MiB."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.gateway.admin.memory_pieces import memory_fragmentation_ratio

PAGE = 4096


def ratio(path: Path, text: str) -> float | None:
    path.write_text(text)
    return memory_fragmentation_ratio(path, page_bytes=PAGE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Node 0, zone   Normal 512 0 0 0 0 0 0 0 0 1 0\n", 0.5, id="half of it"),
        pytest.param("Node 0, zone   Normal 0 0 0 0 0 0 0 0 0 0 3\n", 0.0, id="only large ones"),
        pytest.param("Node 0, zone   Normal 9 0 0 0 0 0 0 0 0 0 0\n", 1.0, id="only small ones"),
        pytest.param(
            "Node 0, zone DMA 512 0 0 0 0 0 0 0 0 0 0\nNode 1, zone DMA 0 0 0 0 0 0 0 0 0 0 1\n",
            1 / 3,
            id="all zones of all nodes together",
        ),
        pytest.param("Node 0, zone   Normal 0 0 0\n", None, id="nothing is free"),
        pytest.param("Node 0, zone   Normal 1 x 0\n", None, id="no numbers"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_ratio(tmp_path: Path, text: str, expected: float | None) -> None:
    found = ratio(tmp_path / "buddyinfo", text)
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_kernel_that_does_not_tell(tmp_path: Path) -> None:
    assert memory_fragmentation_ratio(tmp_path / "none") is None
