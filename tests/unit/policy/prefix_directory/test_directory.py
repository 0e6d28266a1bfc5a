"""BlockDirectory: states and owners, suspects, invalidations, and its bound."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mileage.core.errors import ConfigError
from mileage.policy.prefix_directory.directory import BlockDirectory, Owner

A, B, A_HOST = Owner("a"), Owner("b"), Owner("a", medium="CPU")


def directory() -> BlockDirectory:
    """`a` has blocks 1 to 4, and 1 in its host's memory too; `b` has 1 to 2."""
    made = BlockDirectory()
    made.stored(A, [1, 2, 3, 4])
    made.stored(A_HOST, [1])
    made.stored(B, [1, 2])
    return made


@pytest.mark.parametrize(
    ("block", "state", "owners"),
    [
        pytest.param(1, "shared", (A, A_HOST, B), id="several have it"),
        pytest.param(3, "modified", (A,), id="one has it, and is the last"),
        pytest.param(9, "invalid", (), id="nobody has it"),
    ],
)
def test_states(block: int, state: str, owners: tuple[Owner, ...]) -> None:
    assert directory().state(block) == state
    assert set(directory().owners(block)) == set(owners)
    assert (block in directory()) == bool(owners)


def test_a_match_is_the_beginning_that_each_replica_has() -> None:
    assert directory().match([1, 2, 3, 9]) == {"a": 3, "b": 2}
    assert directory().match([9, 1]) == {}


def test_a_suspect_is_counted_no_more_until_it_is_trusted() -> None:
    made = directory()
    made.suspect("a", 0)
    assert made.match([1, 2, 3]) == {"b": 2}
    assert made.state(3) == "invalid"
    made.trusted("a", 0)
    assert made.match([1, 2, 3]) == {"a": 3, "b": 2}
    made.suspect("a", 0)
    made.cleared("a", 0)
    made.stored(A, [1])
    assert made.match([1, 2, 3]) == {"a": 1, "b": 2}


def test_only_holders_are_told_of_an_invalidation_and_are_awaited() -> None:
    made = directory()
    messages = made.invalidate([2, 3, 9])
    assert messages == {A: (2, 3), B: (2,)}
    assert made.state(2) == "invalid"
    assert set(made.awaited(2)) == {A, B}
    made.removed(A, [2, 3])
    assert made.awaited(2) == (B,)
    made.cleared("b")
    assert made.awaited(2) == ()
    made.stored(A, [2])
    assert made.state(2) == "modified"


def test_a_replica_that_is_gone_holds_nothing_and_replicas_that_come_and_go_take_no_room() -> None:
    made = directory()
    made.invalidate([4])
    made.suspect("a", 0)
    made.forget("a")
    assert made.match([1, 2, 3]) == {"b": 2}
    assert (made.held_by("a"), made.awaited(4), len(made)) == ([], (), 2)
    for number in range(100):
        made.stored(Owner(f"pod-{number}"), [1, 7])
        assert made.owners(7) == (Owner(f"pod-{number}"),)
        made.forget(f"pod-{number}")
    assert made.owners(1) == (B,)
    assert len(made._owners) == 3


def test_the_coldest_is_forgotten_and_counted() -> None:
    made = BlockDirectory(blocks_max=3)
    made.stored(A, [1, 2, 3])
    made.used([1])
    made.stored(A, [4])
    assert made.forgotten_total == 1
    assert [1 in made, 2 in made, 3 in made, 4 in made] == [True, False, True, True]
    assert made.held_by("a") == [3, 1, 4]
    with pytest.raises(ConfigError):
        BlockDirectory(blocks_max=0)


owners = st.sampled_from([A, B, A_HOST, Owner("b", 1)])
blocks = st.lists(st.integers(0, 12), max_size=5)
steps = st.lists(
    st.tuples(st.sampled_from(["stored", "removed", "cleared", "invalidate"]), owners, blocks),
    max_size=60,
)


@given(steps)
def test_it_knows_what_a_table_for_each_owner_knows(
    steps: list[tuple[str, Owner, list[int]]],
) -> None:
    made = BlockDirectory()
    truth: dict[Owner, set[int]] = {}
    for kind, owner, some in steps:
        mine = truth.setdefault(owner, set())
        if kind == "stored":
            made.stored(owner, some)
            mine |= set(some)
        elif kind == "removed":
            made.removed(owner, some)
            mine -= set(some)
        elif kind == "cleared":
            made.cleared(owner.replica, owner.rank)
            for other, held in truth.items():
                if (other.replica, other.rank) == (owner.replica, owner.rank):
                    held.clear()
        else:
            told = made.invalidate(some)
            wanted = {o: held & set(some) for o, held in truth.items() if held & set(some)}
            assert {o: set(each) for o, each in told.items()} == wanted
            for held in truth.values():
                held -= set(some)
        for block in range(13):
            assert set(made.owners(block)) == {o for o, held in truth.items() if block in held}
        assert len(made) == len(set().union(*truth.values()))
