"""HintRates: a hint is worth what such hints were worth before."""

from __future__ import annotations

import random

import pytest

from mileage.policy.eviction.hint_rates import HintRates
from mileage.policy.eviction.policy import BlockUse
from mileage.policy.eviction.return_aware import ReturnAwareConfig, ReturnAwareEviction


def learned(claim: float, *, followed_ratio: float, count: int = 400) -> HintRates:
    rates = HintRates(memory_hints=512)
    for number in range(count):
        rates.asked(HintRates.level(claim))
        if int(number * followed_ratio) != int((number + 1) * followed_ratio):
            rates.returned(HintRates.level(claim))
    return rates


def test_a_claim_is_believed_until_it_was_tried() -> None:
    rates = HintRates(memory_hints=512)
    assert rates.rate(0.9) == pytest.approx(0.9)
    assert rates.relative(0.9, kind_rate=0.4, mean_rate=0.4) == pytest.approx(0.9 / 0.4)


def test_what_came_of_hints_outweighs_what_they_claim() -> None:
    assert learned(0.9, followed_ratio=0.2).rate(0.9) == pytest.approx(0.2, abs=0.05)


def test_a_hint_that_tells_nothing_changes_nothing() -> None:
    rates = learned(0.9, followed_ratio=0.38)
    relative = rates.relative(0.9, kind_rate=0.1, mean_rate=rates.rate(0.9))
    assert relative == pytest.approx(1.0)


def test_the_odds_of_a_kind_and_a_hint_multiply() -> None:
    rates = HintRates(memory_hints=512)
    # By counting: of 100 requests of the kind 20 are followed; a yes is right and wrong in the
    # proportion that takes a half to three quarters, 3 to 1: 20 x 3 against 80 x 1.
    relative = rates.relative(0.75, kind_rate=0.2, mean_rate=0.5)
    assert relative * 0.2 == pytest.approx(60 / 140)


@pytest.mark.parametrize("hint", [0.0, 1.0])
def test_certainty_is_bounded(hint: float) -> None:
    rates = HintRates(memory_hints=512)
    chance = 0.5 * rates.relative(hint, kind_rate=0.5, mean_rate=0.5)
    assert chance == pytest.approx(abs(hint - 0.005))


@pytest.mark.parametrize(
    ("hint", "level"), [(-0.1, 0), (0.0, 0), (0.0999, 0), (0.1, 1), (0.95, 9), (1.0, 9), (7.0, 9)]
)
def test_hints_are_taken_by_tenths(hint: float, level: int) -> None:
    assert HintRates.level(hint) == level


def test_hints_that_turn_wrong_are_noticed() -> None:
    rates = learned(0.9, followed_ratio=1.0, count=5000)
    for _ in range(600):
        rates.asked(HintRates.level(0.9))
    assert rates.rate(0.9) < 0.4


def weight_after_lessons(right: bool) -> tuple[float, float]:
    """How far a yes and a no then lift a new block over one without a hint."""
    policy = ReturnAwareEviction(ReturnAwareConfig(shadow_blocks=0), blocks_max=64)
    rng = random.Random(1)
    block = 0
    for _ in range(800):
        block += 2
        goes_on = rng.random() < 0.5
        hint = 0.9 if goes_on == right else 0.1
        policy.use(BlockUse((block,), 1, hint), 0.0)
        if goes_on:
            policy.use(BlockUse((block, block + 1), 2), 0.0)
    policy.use(BlockUse((-1,), 1), 0.0)
    policy.use(BlockUse((-2,), 1, 0.9), 0.0)
    policy.use(BlockUse((-3,), 1, 0.1), 0.0)
    return policy.rank(-2) - policy.rank(-1), policy.rank(-3) - policy.rank(-1)


def test_the_policy_learns_from_its_own_traffic_which_hints_are_right() -> None:
    yes, no = weight_after_lessons(right=True)
    assert yes > 0 > no
    yes, no = weight_after_lessons(right=False)
    assert yes < 0 < no
