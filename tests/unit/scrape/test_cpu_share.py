"""The share of its cores that an engine's process uses."""

from __future__ import annotations

import asyncio
import os

import pytest

from mileage.core.errors import EngineError
from mileage.scrape.cpu import CpuSource


class Machine:
    """A process whose time is set by the test."""

    def __init__(self) -> None:
        self.pid: int | None = 7
        self.used_s = 100.0
        self.now_s = 0.0
        self.source = CpuSource(
            lambda: self.pid, 4, clock=lambda: self.now_s, cpu_s=lambda pid: self.used_s
        )

    def after(self, seconds: float, used_s: float) -> float | None:
        """What is read when so much time has passed and been used."""
        self.now_s += seconds
        self.used_s += used_s
        return asyncio.run(self.source.read())


def test_cpu_seconds_per_second_and_thread() -> None:
    machine = Machine()
    assert machine.after(0.0, 0.0) is None
    assert machine.after(2.0, 4.0) == 0.5
    assert machine.after(1.0, 0.0) == 0.0
    assert machine.after(1.0, 4.0) == 1.0
    assert machine.after(1.0, 9.0) == 1.0  # threads beside those that compute


def test_a_new_process_begins_anew() -> None:
    machine = Machine()
    assert machine.after(0.0, 0.0) is None
    machine.pid = 8
    assert machine.after(1.0, 2.0) is None
    assert machine.after(1.0, 2.0) == 0.5


@pytest.mark.parametrize(
    ("seconds", "used_s"),
    [
        pytest.param(0.0, 1.0, id="no time has passed"),
        pytest.param(1.0, -1.0, id="another process of the same number"),
    ],
)
def test_what_cannot_be_is_not_known(seconds: float, used_s: float) -> None:
    machine = Machine()
    assert machine.after(0.0, 0.0) is None
    assert machine.after(seconds, used_s) is None


def test_without_a_process_nothing_is_known() -> None:
    machine = Machine()
    assert machine.after(0.0, 0.0) is None
    machine.pid = None
    with pytest.raises(EngineError, match="no process"):
        machine.after(1.0, 1.0)
    machine.pid = 7
    assert machine.after(1.0, 1.0) is None


def test_a_real_process() -> None:
    source = CpuSource(os.getpid, 1, clock=iter((0.0, 1000.0)).__next__)
    assert asyncio.run(source.read()) is None
    ratio = asyncio.run(source.read())
    assert ratio is not None
    assert 0 <= ratio < 1
    gone = CpuSource(lambda: 2**22 + 1, 1, clock=lambda: 0.0)
    with pytest.raises(EngineError, match="cannot be read"):
        asyncio.run(gone.read())
