"""Files of engine steps: read as written, also when cut off, and refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.errors import ConfigError, TraceError
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.step_record import step_record
from mileage.storage.step_file import read_steps

STEPS = [
    EngineStep("a", 1, 2, (StepUse(1, 2, 3, 4, 5),)),
    EngineStep("b", 3, 4),
]


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_bytes(b"".join(map(step_record, STEPS)))
    assert list(read_steps(path)) == STEPS


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_what_is_cut_off_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "steps"
    path.write_bytes(b"".join(map(step_record, STEPS))[:-cut])
    assert list(read_steps(path)) == STEPS[:1]


@pytest.mark.parametrize("data", [b"\x02\x00\x00\x00\x91\x01", b"\xff\xff\xff\xff", b"{not steps"])
def test_what_is_no_step_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "steps"
    path.write_bytes(step_record(STEPS[0]) + data)
    with pytest.raises(TraceError, match=r"steps.*2"):
        list(read_steps(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--steps"):
        list(read_steps(tmp_path / "none"))
