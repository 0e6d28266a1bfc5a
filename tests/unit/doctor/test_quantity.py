"""Numeric facts: one value, one for each unit, a series; and what is absent or not set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.quantity import Quantity, absent

KEY = "requests_waiting"


def quantity(value: Any) -> Quantity:
    found = decode_facts({"signals": {KEY: value}}).values[KEY]
    assert isinstance(found, Quantity)
    return found


def setting(value: Any) -> Quantity:
    found = decode_facts({"settings": {"max_num_seqs": value}}).values["max_num_seqs"]
    assert isinstance(found, Quantity)
    return found


@pytest.mark.parametrize(
    ("value", "mean", "most", "least", "total"),
    [
        pytest.param(3, exactly(3), exactly(3), exactly(3), exactly(3), id="one value"),
        pytest.param([2, 4], exactly(3), exactly(4), exactly(2), exactly(6), id="two units"),
        pytest.param(
            {"series": [{"value": 2}, {"value": 4}]},
            exactly(3),
            exactly(4),
            exactly(2),
            exactly(3),
            id="a series: its total is its mean",
        ),
        pytest.param(
            [{"min": 1, "max": 3}, 4],
            Interval(2.5, 3.5),
            exactly(4),
            Interval(1, 3),
            Interval(5, 7),
            id="a unit that is known within bounds",
        ),
    ],
)
def test_mean_most_least_and_total(
    value: Any, mean: Interval, most: Interval, least: Interval, total: Interval
) -> None:
    known = quantity(value)
    assert (known.value, known.most, known.least, known.total) == (mean, most, least, total)


def test_checks_look_at_the_mean_and_their_kin_at_units() -> None:
    units = quantity([0, 10])
    assert units.above(4).truth is True
    assert units.at_least(5).truth is True
    assert units.at_most(5).truth is True
    assert units.below(5).truth is False
    assert units.any_above(9).truth is True
    assert units.any_below(1).truth is True
    assert units.all_above(1).truth is False
    assert units.all_below(9).truth is False


def test_what_is_absent_answers_no_question() -> None:
    nothing = absent(KEY)
    asked = (
        nothing.above(1),
        nothing.at_most(1),
        nothing.any_above(1),
        nothing.all_below(1),
        nothing.exceeds(quantity(1)),
        quantity(1).exceeds(nothing),
        nothing.where("anything", lambda value: True),
        nothing.is_unset(),
    )
    assert {check.truth for check in asked} == {None}
    assert (nothing.value, nothing.total, nothing.plain()) == (ANY, ANY, None)


def test_not_set_is_known_and_has_no_value() -> None:
    assert setting(None).is_unset().truth is True
    assert setting(None).above(1).truth is None
    assert setting(8).is_unset().truth is False


def test_exceeding_a_multiple() -> None:
    assert quantity(5).exceeds(quantity(2), 2).truth is True
    assert quantity(4).exceeds(quantity(2), 2).truth is False
    assert quantity({"min": 3}).exceeds(quantity(2), 2).truth is None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(3.0, id="one value"),
        pytest.param({"min": 1.0}, id="a lower bound"),
        pytest.param({"min": 1.0, "max": 2.0}, id="both bounds"),
        pytest.param([1.0, {"min": 2.0}], id="units"),
        pytest.param({"series": [{"value": 1.0}, {"value": 2.0}]}, id="an order"),
        pytest.param(
            {"series": [{"t_s": 0.0, "value": 1.0}, {"t_s": 9.0, "value": 2.0}]}, id="times"
        ),
    ],
)
def test_it_is_written_back_as_it_was_read(value: Any) -> None:
    assert quantity(value).plain() == value


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=9), st.floats(0, 1e9))
def test_all_and_any_are_those_of_the_units(values: list[float], limit: float) -> None:
    units = quantity(values)
    assert units.any_above(limit).truth is any(value > limit for value in values)
    assert units.all_above(limit).truth is all(value > limit for value in values)
    assert units.any_below(limit).truth is any(value < limit for value in values)
    assert units.all_below(limit).truth is all(value < limit for value in values)
