"""The knapsack against all combinations, and what it says where nothing fits."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from mileage.quant.allocate import Choice, Option, allocate, frontier

Slots = list[tuple[Option, ...]]


def _slots(seed: int, *, slots: int, options: int) -> Slots:
    """Few distinct numbers, so that sums tie."""
    random = Random(seed)
    return [
        tuple(
            Option(name=f"{i}.{j}", bits=random.randint(2, 9), kl=random.randint(0, 6) / 8.0)
            for j in range(options)
        )
        for i in range(slots)
    ]


def _all(slots: Slots) -> list[tuple[int, float]]:
    return [
        (sum(o.bits for o in picked), sum(o.kl for o in picked))
        for picked in itertools.product(*slots)
    ]


def _consistent(choice: Choice, slots: Slots) -> bool:
    """Each slot has one of its own options, and the sums are theirs."""
    own = all(o in slot for o, slot in zip(choice.options, slots, strict=True))
    bits, kl = sum(o.bits for o in choice.options), sum(o.kl for o in choice.options)
    return own and (choice.bits, choice.kl) == (bits, kl)


@pytest.mark.parametrize("seed", range(12))
def test_no_combination_is_better(seed: int) -> None:
    slots = _slots(seed, slots=5, options=4)
    sums = _all(slots)

    for limit in range(min(bits for bits, _ in sums), 47, 3):
        found = allocate(slots, bits_max=limit)
        assert found is not None
        assert _consistent(found, slots)
        assert found.bits <= limit
        assert found.kl == min(kl for bits, kl in sums if bits <= limit)
    for eighths in range(int(8 * min(kl for _, kl in sums)), 32, 5):
        found = allocate(slots, kl_max=eighths / 8.0)
        assert found is not None
        assert _consistent(found, slots)
        assert found.bits == min(bits for bits, kl in sums if kl <= eighths / 8.0)


@pytest.mark.parametrize("seed", range(6))
def test_the_frontier_is_all_that_nothing_dominates(seed: int) -> None:
    slots = _slots(seed, slots=4, options=5)
    sums = set(_all(slots))
    expected = sorted(
        (bits, kl)
        for bits, kl in sums
        if not any((b <= bits and k <= kl) and (b, k) != (bits, kl) for b, k in sums)
    )

    found = frontier(slots)

    assert list(zip(found.bits.tolist(), found.kl.tolist(), strict=True)) == expected
    assert all(_consistent(found.choice(i), slots) for i in range(len(expected)))


def test_what_nothing_meets_has_no_choice() -> None:
    slots = [(Option(name="a", bits=4, kl=0.5), Option(name="b", bits=8, kl=0.25))] * 2

    assert allocate(slots, bits_max=7) is None
    assert allocate(slots, kl_max=0.49) is None
    assert frontier(slots).kl[-1] == 0.5


def test_one_limit_is_asked_for() -> None:
    slots = [(Option(name="a", bits=4, kl=0.5),)]

    with pytest.raises(ValueError, match="and not both"):
        allocate(slots)
    with pytest.raises(ValueError, match="and not both"):
        allocate(slots, bits_max=8, kl_max=1.0)


@pytest.mark.parametrize(
    "slot",
    [
        pytest.param((), id="a slot without options"),
        pytest.param((Option(name="a", bits=4, kl=-0.1),), id="a KL below 0"),
        pytest.param((Option(name="a", bits=4, kl=float("nan")),), id="a KL that is no number"),
    ],
)
def test_what_cannot_be_added_up_is_refused(slot: tuple[Option, ...]) -> None:
    with pytest.raises(ValueError, match="a KL of at least 0"):
        frontier([slot])
