"""Orders of prompts: who is before whom, and that nobody is overtaken for ever."""

from __future__ import annotations

import math

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.ordering.choose import ORDERING_POLICIES, OrderingPolicyName, make_ordering
from mileage.policy.ordering.policy import Prompt
from mileage.policy.ordering.shortest import ShortestConfig, ShortestOrdering

LONG = Prompt(arrived_s=0.0, deadline_s=30.0, tokens=100_000, alone_s=10.0)


def short(arrived_s: float) -> Prompt:
    return Prompt(arrived_s=arrived_s, deadline_s=arrived_s + 2.0, tokens=100, alone_s=0.01)


@pytest.mark.parametrize(
    ("name", "arrived_s", "first"),
    [
        pytest.param("fcfs", 0.1, "long", id="first come, first served, however long it is"),
        pytest.param("deadline", 27.9, "short", id="what is due before the long one goes first"),
        pytest.param("deadline", 28.1, "long", id="what is due after it does not"),
        pytest.param("shortest", 39.0, "short", id="a short one passes within four times 10 s"),
        pytest.param("shortest", 41.0, "long", id="after that the long one has waited enough"),
    ],
)
def test_a_short_prompt_before_a_long_one(
    name: OrderingPolicyName, arrived_s: float, first: str
) -> None:
    ordering = make_ordering(name)
    before = ordering.key(short(arrived_s)) < ordering.key(LONG)
    assert ("short" if before else "long") == first


@pytest.mark.parametrize("name", ORDERING_POLICIES)
def test_whoever_comes_late_enough_is_behind_everybody(name: OrderingPolicyName) -> None:
    ordering = make_ordering(name)
    assert ordering.key(short(1e6)) > ordering.key(LONG)


def test_prompts_without_deadlines_keep_their_order_behind_those_with_one() -> None:
    ordering = make_ordering("deadline")
    keys = [ordering.key(Prompt(at, math.inf, 10, 0.0)) for at in (1.0, 2.0, 2.0 + 1e-3)]
    assert keys == sorted(set(keys))
    assert ordering.key(short(1e6)) < keys[0]


def test_without_patience_shortest_is_first_come_first_served() -> None:
    ordering = ShortestOrdering(ShortestConfig(patience_ratio=0.0))
    assert ordering.key(LONG) == LONG.arrived_s


@pytest.mark.parametrize("ratio", [-1.0, math.nan, math.inf])
def test_a_patience_that_cannot_be_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match="patience_ratio"):
        ShortestConfig(patience_ratio=ratio)
