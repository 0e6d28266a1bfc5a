"""CoreUse: idle shares between two looks, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.errors import EngineError
from mileage.scrape.core_use import CoreUse


def stat(*rows: str) -> str:
    return "cpu  9 9 9 9 9 9 9 9 0 0\n" + "".join(f"{row}\n" for row in rows) + "intr 5\n"


def test_the_share_between_two_looks(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    use = CoreUse(path)
    path.write_text(stat("cpu0 10 0 0 100 0 0 0 0 7 7", "cpu1 0 0 0 0 0 0 0 0 0 0"))
    assert use.look() == {}
    path.write_text(stat("cpu0 40 0 0 130 40 0 0 0 9 9", "cpu1 10 0 0 0 0 0 0 0 0 0"))
    assert use.look() == {"core 0": 0.7, "core 1": 0.0}
    assert use.look() == {}, "no time has passed"


def test_a_core_that_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    use = CoreUse(path)
    path.write_text(stat("cpu0 1 0 0 1 0 0 0 0"))
    use.look()
    path.write_text(stat("cpu0 2 0 0 2 0 0 0 0", "cpu1 5 0 0 5 0 0 0 0"))
    assert use.look() == {"core 0": 0.5}


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu0 1 2\n"])
def test_what_tells_of_no_core(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stat"
    path.write_text(text)
    with pytest.raises(EngineError, match="no core"):
        CoreUse(path).look()
