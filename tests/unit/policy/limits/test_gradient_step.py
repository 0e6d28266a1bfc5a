"""The gradient step: cut in proportion, grow by the square root, and only on evidence."""

from __future__ import annotations

import math

import pytest

from mileage.policy.limits.gradient import GradientStep
from tests.support.limit_signals import sample_of


def stepped(
    gaps_s: list[float | None], *, limit: int = 16, running: float = 16.0, cap_s: float = 0.06
) -> float:
    step = GradientStep()
    step.learn([sample_of(running, step_s=0.01, itl_p99_s=gap_s) for gap_s in gaps_s], limit)
    return step.next(limit, reached=True, cap_s=cap_s)[0]


@pytest.mark.parametrize(
    ("gap_s", "limit"),
    [
        pytest.param(0.05, 20, id="within the cap: the square root more"),
        pytest.param(0.08, 12, id="a third too long: a quarter less"),
        pytest.param(0.60, 8, id="ten times too long: not below half at once"),
        pytest.param(math.nan, 20, id="gaps that are no numbers: the mean step stands for them"),
        pytest.param(None, 20, id="no gaps (not streamed): the mean step stands for them"),
    ],
)
def test_with_a_cap(gap_s: float | None, limit: int) -> None:
    assert stepped([gap_s] * 6) == limit


def test_too_few_requests_or_those_of_a_higher_limit_move_nothing() -> None:
    assert stepped([0.6] * 4) == 16
    assert stepped([0.6] * 9, running=30.0) == 16


def test_where_the_limit_is_not_reached_it_does_not_grow() -> None:
    step = GradientStep()
    step.learn([sample_of(16.0, step_s=0.01)] * 6, 16)
    assert step.next(16, reached=False, cap_s=0.06)[0] == 16


def test_after_a_change_requests_are_gathered_anew() -> None:
    step = GradientStep()
    step.learn([sample_of(16.0, step_s=0.2)] * 6, 16)
    assert step.next(16, reached=True, cap_s=0.06)[0] == 8
    assert step.next(8, reached=True, cap_s=0.06) == (8, "too few requests at this limit")
