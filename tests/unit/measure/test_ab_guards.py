"""Guards of an A/B run: each fires on its confounder, and not without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import numpy as np
import pytest

from mileage.measure.ab_guards import (
    AbFacts,
    Guard,
    Pair,
    arms_got_different_requests,
    blocks_depend,
    cache_differs,
    effect_drifts,
    order_matters,
    pairs_of,
    sample_ratio,
    standing_guards,
)
from mileage.measure.arm_slot import SlotFigures
from tests.support.ab_world import slot_of

MakeSlot = Callable[[int, Literal["a", "b"], Literal[0, 1]], SlotFigures]
NOISE = np.random.default_rng(1).normal(0.0, 0.05, 24)
NO_FACTS = AbFacts()


def pairs(make: MakeSlot, *, blocks: int = 12, turns: bool = True) -> list[Pair]:
    """Blocks in which the arms come first in turns, or a always does."""
    found: list[SlotFigures] = []
    for block in range(blocks):
        b_first = turns and block % 2 == 1
        found.append(make(block, "a", 1 if b_first else 0))
        found.append(make(block, "b", 0 if b_first else 1))
    return pairs_of(found)


def plain(block: int, arm: Literal["a", "b"], order: Literal[0, 1]) -> SlotFigures:
    return slot_of(
        block,
        arm,
        order,
        [1.0, 2.0],
        requests=100 + (7 * block + order) % 5,
        cached_ratio=0.3 + 0.01 * ((block + order) % 3),
        prompt_tokens_mean=500.0 + (block + order) % 4,
    )


def changed(make: MakeSlot, arm: str, **others: float) -> MakeSlot:
    """The same slots, but for these values of one arm."""

    def other(block: int, own: Literal["a", "b"], order: Literal[0, 1]) -> SlotFigures:
        slot = make(block, own, order)
        if own != arm:
            return slot
        figures = {k: v for k, v in others.items() if k != "prompt_tokens_mean"}
        prompt = others.get("prompt_tokens_mean", slot.prompt_tokens_mean)
        return msgspec.structs.replace(
            slot,
            figures=msgspec.structs.replace(slot.figures, **figures),
            prompt_tokens_mean=prompt,
        )

    return other


def test_equal_arms_raise_no_guard() -> None:
    assert standing_guards(pairs(plain), NO_FACTS) == []


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        pytest.param(AbFacts(restarts=("server b",)), "restart", id="a restart"),
        pytest.param(AbFacts(generator_limited="CPU"), "generator_limited", id="the generator"),
        pytest.param(AbFacts(unsteady=("arm b: queue grows",)), "not_steady", id="overload"),
    ],
)
def test_what_the_run_saw_makes_it_invalid(facts: AbFacts, name: str) -> None:
    (found,) = standing_guards(pairs(plain), facts)

    assert (found.name, found.invalid) == (name, True)


def test_too_few_blocks() -> None:
    (found,) = standing_guards(pairs(plain, blocks=3), NO_FACTS)

    assert found.name == "too_few_blocks"


def test_an_arm_that_gets_more_requests_than_the_other() -> None:
    assert sample_ratio(pairs(plain)) is None
    found = sample_ratio(pairs(changed(plain, "b", requests=120)))
    assert found is not None
    assert found.invalid


def test_a_split_is_held_against_even_odds() -> None:
    def split(a: int, b: int) -> Guard | None:
        slots = [slot_of(n, "a", None, requests=a) for n in range(8)]
        return sample_ratio(
            pairs_of([*slots, *(slot_of(n, "b", None, requests=b) for n in range(8))])
        )

    assert split(500, 520) is None
    assert split(500, 600) is not None
    nobody = split(0, 0)
    assert nobody is not None
    assert nobody.name == "no_requests"


def test_arms_whose_prompts_differ_in_length() -> None:
    assert arms_got_different_requests(pairs(plain)) is None
    found = arms_got_different_requests(pairs(changed(plain, "b", prompt_tokens_mean=600.0)))
    assert found is not None
    assert "as long as" in found.text


def test_many_failures_of_both_arms_are_told() -> None:
    both = pairs(lambda block, arm, order: slot_of(block, arm, order, [1.0] * 97, failed=3))

    assert [(g.name, g.invalid) for g in standing_guards(both, NO_FACTS)] == [("censored", False)]


def test_a_warmer_cache_is_told_and_is_no_guard_where_it_is_meant() -> None:
    warm = pairs(changed(plain, "b", cached_tokens_ratio=0.6))

    found = cache_differs(warm)
    assert found is not None
    assert not found.invalid
    assert standing_guards(warm, AbFacts(cache_is_the_effect=True)) == []


def test_the_slot_that_comes_second_finds_a_warmer_cache() -> None:
    def warmed(block: int, arm: Literal["a", "b"], order: Literal[0, 1]) -> SlotFigures:
        return slot_of(block, arm, order, [1.0], cached_ratio=0.2 + 0.5 * order)

    found = cache_differs(pairs(warmed, turns=False))
    assert found is not None
    assert (found.name, found.invalid) == ("warm_cache", True)
    assert cache_differs(pairs(warmed, turns=True)) is None


def test_an_effect_of_the_order_widens_where_arms_take_turns_and_biases_where_not() -> None:
    turns, always = pairs(plain), pairs(plain, turns=False)
    signs = np.array([1.0 if p.b.order == 1 else -1.0 for p in turns])

    found = order_matters(turns, NOISE[:12] + 0.3 * signs)
    assert found is not None
    assert not found.invalid
    assert "by +3" in found.text
    assert order_matters(turns, NOISE[:12]) is None
    stuck = order_matters(always, NOISE[:12])
    assert stuck is not None
    assert stuck.invalid


def test_arms_at_the_same_time_have_no_order() -> None:
    split = pairs_of([slot_of(n, arm, None) for n in range(8) for arm in ("a", "b")])

    assert order_matters(split, NOISE[:8]) is None


def test_an_effect_that_drifts() -> None:
    found = effect_drifts(NOISE + 0.05 * np.arange(24))
    assert found is not None
    assert not found.invalid
    assert effect_drifts(NOISE) is None
    assert effect_drifts(np.zeros(5)) is None


def test_blocks_that_follow_each_other_are_alike() -> None:
    assert blocks_depend(NOISE) is None
    assert blocks_depend(np.zeros(24)) is None
    found = blocks_depend(np.sin(np.arange(24) / 4.0))
    assert found is not None
    assert found.invalid


def test_dependence_and_drift_are_seldom_seen_in_noise() -> None:
    generator = np.random.default_rng(4)
    runs = [generator.normal(size=16) for _ in range(2000)]

    assert sum(blocks_depend(run) is not None for run in runs) <= 10
    assert sum(effect_drifts(run) is not None for run in runs) <= 10


def test_pairs_are_blocks_with_both_arms_once() -> None:
    slots = [slot_of(2, "b", 1), slot_of(1, "a", 0), slot_of(2, "a", 0)]

    assert [p.a.block for p in pairs_of(slots)] == [2]
    with pytest.raises(ValueError, match="arm a twice"):
        pairs_of([*slots, slot_of(1, "a", 0)])
