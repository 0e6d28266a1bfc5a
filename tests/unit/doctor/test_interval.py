"""Numbers within bounds: what is so for every value, and arithmetic that leaves none out."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mileage.doctor.interval import ANY, Interval, exactly

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)
AMOUNTS = st.floats(0, 1e12, allow_nan=False)


@st.composite
def within(draw: st.DrawFn, numbers: st.SearchStrategy[float]) -> tuple[Interval, float]:
    """An interval, one end of it open at times, and a value in it."""
    low, value, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    ends = draw(st.sampled_from(("both", "low", "high")))
    return Interval(low if ends != "high" else -inf, high if ends != "low" else inf), value


Comparison = Callable[[Interval, float], bool | None]
COMPARISONS: tuple[tuple[Comparison, Callable[[float, float], bool]], ...] = (
    (Interval.above, float.__gt__),
    (Interval.at_least, float.__ge__),
    (Interval.below, float.__lt__),
    (Interval.at_most, float.__le__),
)


@given(within(NUMBERS), NUMBERS)
def test_an_answer_holds_for_every_value(known: tuple[Interval, float], limit: float) -> None:
    interval, value = known
    for asked, truth in COMPARISONS:
        answer = asked(interval, limit)
        assert answer is None or answer is truth(value, limit)


@given(within(NUMBERS), NUMBERS)
def test_one_value_answers_every_question(known: tuple[Interval, float], limit: float) -> None:
    _, value = known
    for asked, truth in COMPARISONS:
        assert asked(exactly(value), limit) is truth(value, limit)


@given(within(NUMBERS), NUMBERS, NUMBERS)
def test_knowing_more_never_takes_an_answer_back(
    known: tuple[Interval, float], other: float, limit: float
) -> None:
    interval, value = known
    low, high = sorted((value, min(max(other, interval.low), interval.high)))
    narrower = Interval(low, high)
    for asked, _ in COMPARISONS:
        if (answer := asked(interval, limit)) is not None:
            assert asked(narrower, limit) is answer


@given(within(NUMBERS), within(NUMBERS))
def test_exceeding_holds_for_every_two_values(
    one: tuple[Interval, float], other: tuple[Interval, float]
) -> None:
    answer = one[0].exceeds(other[0])
    assert answer is None or answer is (one[1] > other[1])


def holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


@given(within(NUMBERS), within(NUMBERS))
def test_sums_and_differences_leave_no_value_out(
    one: tuple[Interval, float], other: tuple[Interval, float]
) -> None:
    assert holds(one[0].plus(other[0]), one[1] + other[1])
    assert holds(one[0].minus(other[0]), one[1] - other[1])
    assert holds(one[0].hull(other[0]), one[1])
    assert holds(one[0].hull(other[0]), other[1])


@given(within(AMOUNTS), within(AMOUNTS))
def test_products_and_quotients_leave_no_value_out(
    one: tuple[Interval, float], other: tuple[Interval, float]
) -> None:
    assert holds(one[0].times(other[0]), one[1] * other[1])
    assume(other[1] > 0)
    assert holds(one[0].over(other[0]), one[1] / other[1])


@given(within(NUMBERS), NUMBERS, NUMBERS)
def test_clipping_moves_a_value_as_it_moves_the_ends(
    known: tuple[Interval, float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert holds(known[0].clipped(low, high), min(max(known[1], low), high))


@given(within(NUMBERS))
def test_the_middle_is_within(known: tuple[Interval, float]) -> None:
    assert holds(known[0], known[0].middle)


def test_nothing_known_answers_nothing_and_has_0_for_its_middle() -> None:
    assert {asked(ANY, 3.0) for asked, _ in COMPARISONS} == {None}
    assert ANY.middle == 0.0
    assert not ANY.bounded


@pytest.mark.parametrize(
    ("above", "below", "quotient"),
    [
        pytest.param(exactly(6), exactly(3), exactly(2), id="exact values"),
        pytest.param(exactly(6), Interval(0, 3), Interval(2, inf), id="by what may be 0"),
        pytest.param(exactly(6), Interval(3, inf), Interval(0, 2), id="by what has no bound"),
        pytest.param(Interval(0, inf), exactly(2), Interval(0, inf), id="of what has no bound"),
        pytest.param(exactly(0), Interval(0, inf), Interval(0, inf), id="0 by anything"),
    ],
)
def test_quotients_at_the_edges(above: Interval, below: Interval, quotient: Interval) -> None:
    assert above.over(below) == quotient


def test_0_times_anything_is_0() -> None:
    assert exactly(0).times(Interval(0, inf)) == exactly(0)


@pytest.mark.parametrize(
    ("interval", "plain", "shown"),
    [
        pytest.param(exactly(0.25), 0.25, "0.25", id="a value"),
        pytest.param(Interval(1, inf), {"min": 1}, "at least 1", id="a lower bound"),
        pytest.param(Interval(-inf, 2), {"max": 2}, "at most 2", id="an upper bound"),
        pytest.param(Interval(1, 2), {"min": 1, "max": 2}, "1 to 2", id="both"),
        pytest.param(ANY, {}, "unknown", id="none"),
    ],
)
def test_it_is_written_as_facts_have_it(interval: Interval, plain: object, shown: str) -> None:
    assert interval.plain() == plain
    assert interval.shown() == shown
