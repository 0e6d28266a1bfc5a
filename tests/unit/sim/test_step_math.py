"""The closed forms of stretches against sums over their steps."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.sim.step_math import (
    NEVER,
    blocks_of,
    pairs_of,
    series_s,
    steps_until,
    stretch_s,
    turn_of,
)

_c = st.floats(1e-4, 0.1)
_share = st.floats(0.0, 1.0)


def _times(c1: float, d1: float, c2: float, d2: float, count: int) -> list[float]:
    return [max(c1 + d1 * j, c2 + d2 * j) for j in range(count)]


@given(c1=_c, share1=_share, c2=_c, share2=_share, count=st.integers(1, 400))
def test_a_stretch_takes_as_long_as_its_steps(
    c1: float, share1: float, c2: float, share2: float, count: int
) -> None:
    c1, c2 = max(c1, c2), min(c1, c2)
    d1, d2 = share1 * c1 * 0.01, share2 * c2
    turn = turn_of(c1, d1, c2, d2)
    expected = sum(_times(c1, d1, c2, d2, count))
    assert stretch_s(count, c1, d1, turn, c2, d2) == pytest.approx(expected, rel=1e-9)


@given(c1=_c, share1=_share, c2=_c, share2=_share, reached=st.floats(0.0, 0.999))
def test_the_steps_until_a_time_are_the_fewest_that_reach_it(
    c1: float, share1: float, c2: float, share2: float, reached: float
) -> None:
    c1, c2 = max(c1, c2), min(c1, c2)
    d1, d2 = share1 * c1 * 0.01, share2 * c2
    ends = list(accumulate(_times(c1, d1, c2, d2, 300)))
    time_s = reached * ends[-1]
    turn = turn_of(c1, d1, c2, d2)
    steps = steps_until(time_s, c1, d1, turn, c2, d2)
    assert stretch_s(steps, c1, d1, turn, c2, d2) >= time_s
    assert steps == 0 or stretch_s(steps - 1, c1, d1, turn, c2, d2) < time_s
    naive = sum(end < time_s for end in ends) + 1 if time_s else 0
    assert abs(steps - naive) <= (1 if any(abs(e - time_s) < 1e-9 for e in ends) else 0)


@pytest.mark.parametrize(
    ("line", "other", "turn"),
    [
        pytest.param((2.0, 0.0), (1.0, 0.5), 3, id="equal at 2, slower from 3"),
        pytest.param((2.0, 0.5), (1.0, 0.5), NEVER, id="parallel lines never cross"),
        pytest.param((2.0, 1.0), (1.0, 0.5), NEVER, id="lines that part never cross"),
        pytest.param((1.0, 0.0), (1.0, 1.0), 1, id="equal at once, slower from the next"),
    ],
)
def test_the_second_line_holds_from_where_it_is_slower(
    line: tuple[float, float], other: tuple[float, float], turn: int
) -> None:
    assert turn_of(*line, *other) == turn


def test_no_time_takes_no_steps() -> None:
    assert steps_until(0.0, 1.0, 0.5, NEVER, 0.0, 0.0) == 0
    assert series_s(0, 1.0, 0.5) == 0.0


def test_a_boundary_is_reached_by_the_step_that_ends_there() -> None:
    assert steps_until(3.0, 1.0, 0.0, NEVER, 0.0, 0.0) == 3


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_a_block_that_is_begun_is_taken_whole(tokens: int, blocks: int) -> None:
    assert blocks_of(tokens, 16) == blocks


def test_pairs_of_a_prompt_do_not_depend_on_its_chunks() -> None:
    assert pairs_of(0, 100) == pairs_of(0, 40) + pairs_of(40, 60) == sum(range(1, 101))
