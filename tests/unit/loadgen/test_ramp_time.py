"""Ramps: when planned moments come, against the integral of the speed."""

from __future__ import annotations

import math

import pytest

from mileage.loadgen.ramp_time import lanes_at, ramped_s
from mileage.loadgen.run_options import Ramp


def plan_clock_s(ramp: Ramp, now_s: float, steps: int = 20_000) -> float:
    """The plan's clock at a time, by adding up the speed."""
    step_s = now_s / steps
    total = 0.0
    for n in range(steps):
        share = min(1.0, (n + 0.5) * step_s / ramp.over_s)
        total += (ramp.start + (ramp.end - ramp.start) * share) * step_s
    return total


@pytest.mark.parametrize(
    "ramp",
    [
        pytest.param(Ramp(start=1, end=10, over_s=30), id="growing"),
        pytest.param(Ramp(start=0, end=5, over_s=10), id="from nothing"),
        pytest.param(Ramp(start=8, end=2, over_s=20), id="falling"),
        pytest.param(Ramp(start=3, end=3, over_s=20), id="level"),
    ],
)
@pytest.mark.parametrize("now_s", [0.5, 5.0, 19.0, 60.0])
def test_the_plans_clock_is_the_integral_of_the_speed(ramp: Ramp, now_s: float) -> None:
    assert ramped_s(ramp, plan_clock_s(ramp, now_s)) == pytest.approx(now_s, rel=1e-6)


def test_the_plan_begins_with_the_run() -> None:
    assert ramped_s(Ramp(start=0, end=5, over_s=10), 0.0) == 0.0


def test_a_load_that_falls_to_nothing_never_gets_further() -> None:
    ramp = Ramp(start=4, end=0, over_s=10)
    assert ramped_s(ramp, 20.0) == pytest.approx(10.0)
    assert ramped_s(ramp, 19.999) < 10.0
    assert ramped_s(ramp, 20.001) == math.inf


@pytest.mark.parametrize(
    ("now_s", "lanes"),
    [
        pytest.param(-1.0, 0, id="before"),
        pytest.param(0.0, 0, id="at the start"),
        pytest.param(0.99, 0, id="rounded down"),
        pytest.param(1.0, 1, id="the first"),
        pytest.param(10.0, 10, id="at the end"),
        pytest.param(99.0, 10, id="after"),
    ],
)
def test_lanes_open_one_by_one(now_s: float, lanes: int) -> None:
    assert lanes_at(Ramp(start=0, end=10, over_s=10), now_s) == lanes
