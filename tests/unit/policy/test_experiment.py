"""Which arm a request belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.request import Request
from mileage.policy.experiment import (
    ExperimentSplit,
    arm_of,
    cycle_slots,
    share_of,
    slot_at,
)

_REQUESTS = 4000


def _request(request_id: int, **fields: object) -> Request:
    values: dict[str, object] = {
        "tenant": "acme",
        "model": "m",
        "endpoint": "chat",
        "stream": True,
        "arrived_s": 0.0,
        "prompt_tokens_estimate": 10,
        **fields,
    }
    return Request(id=request_id, **values)  # type: ignore[arg-type]


def _split(ratio: float = 0.5, **fields: object) -> ExperimentSplit:
    return ExperimentSplit(name="trial", ratio=ratio, **fields)  # type: ignore[arg-type]


def test_the_hash_is_the_same_for_ever() -> None:
    """A journal of today must replay with the version of next year."""
    assert share_of("trial", 0, "r1") == pytest.approx(0.645314, abs=1e-6)
    assert share_of("trial", 1, "r1") != share_of("trial", 0, "r1")
    assert share_of("other", 0, "r1") != share_of("trial", 0, "r1")


@given(ratio=st.floats(0.0, 1.0), seed=st.integers(0, 2**32))
def test_each_arm_gets_its_share_of_requests(ratio: float, seed: int) -> None:
    split = _split(ratio, seed=seed)
    in_b = sum(arm_of(split, _request(n << 6)) == "b" for n in range(_REQUESTS))
    # Five standard deviations of a binomial.
    assert abs(in_b / _REQUESTS - ratio) <= 5 * (ratio * (1 - ratio) / _REQUESTS) ** 0.5 + 1e-9


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 2**63))
def test_whoever_is_in_arm_b_stays_there_while_the_ratio_grows(
    one: float, other: float, request_id: int
) -> None:
    low, high = sorted((one, other))
    if arm_of(_split(low), _request(request_id)) == "b":
        assert arm_of(_split(high), _request(request_id)) == "b"


@pytest.mark.parametrize(
    ("sticky", "same", "fields"),
    [
        pytest.param("tenant", True, {"prefix_key": None}, id="a tenant stays in one arm"),
        pytest.param("prefix", True, {"prefix_key": 7}, id="a conversation stays in one arm"),
        pytest.param("prefix", False, {"prefix_key": None}, id="without a prefix: by request"),
        pytest.param("request", False, {"prefix_key": 7}, id="by request, whatever the prefix"),
    ],
)
def test_what_sticks_together(sticky: str, same: bool, fields: dict[str, object]) -> None:
    split = _split(sticky=sticky)
    arms = {arm_of(split, _request(n, **fields)) for n in range(64)}
    assert (len(arms) == 1) is same


def test_many_tenants_are_spread_over_both_arms() -> None:
    split = _split(sticky="tenant")
    arms = [arm_of(split, _request(1, tenant=f"t{n}")) for n in range(400)]
    assert 150 < arms.count("b") < 250


@pytest.mark.parametrize(
    ("ratio", "slots"),
    [
        pytest.param(0.0, 1, id="all of arm a"),
        pytest.param(1.0, 1, id="all of arm b"),
        pytest.param(0.5, 2, id="half: pairs"),
        pytest.param(0.25, 4, id="a quarter"),
        pytest.param(0.75, 4, id="three quarters"),
        pytest.param(0.05, 20, id="a twentieth"),
    ],
)
def test_every_cycle_of_slots_has_each_arms_part(ratio: float, slots: int) -> None:
    split = _split(ratio, slot_s=10.0)
    assert cycle_slots(ratio) == slots
    for cycle in range(50):
        arms = [slot_at(split, (cycle * slots + n) * 10.0 + 5.0).arm for n in range(slots)]
        assert arms.count("b") == pytest.approx(ratio * slots)


def test_the_order_of_a_pair_is_random_and_repeats_with_the_seed() -> None:
    first = [slot_at(_split(slot_s=10.0), 20.0 * n + 1.0).arm for n in range(200)]
    assert first == [slot_at(_split(slot_s=10.0), 20.0 * n + 1.0).arm for n in range(200)]
    assert 70 < first.count("b") < 130
    assert first != [slot_at(_split(slot_s=10.0, seed=1), 20.0 * n + 1.0).arm for n in range(200)]


def test_what_comes_right_after_a_change_of_arm_counts_for_neither() -> None:
    split = _split(slot_s=10.0, washout_s=3.0, began_s=100.0)
    for index in range(40):
        start_s = 100.0 + 10.0 * index
        changed = index == 0 or slot_at(split, start_s - 1.0).arm != slot_at(split, start_s).arm
        assert slot_at(split, start_s + 2.9).counted is not changed
        assert slot_at(split, start_s + 3.1).counted
        assert slot_at(split, start_s + 2.9).ends_s == start_s + 10.0


def test_with_slots_the_time_of_arrival_decides() -> None:
    split = _split(slot_s=10.0)
    for second in range(0, 400, 3):
        arm = slot_at(split, float(second)).arm
        assert arm_of(split, _request(second, arrived_s=float(second))) == arm


@given(
    began_s=st.floats(0.0, 1e6),
    slot_s=st.floats(0.01, 1e4),
    slots=st.integers(0, 10_000),
)
def test_a_slot_ends_after_the_moment_that_is_asked_for(
    began_s: float, slot_s: float, slots: int
) -> None:
    split = _split(slot_s=slot_s, began_s=began_s)
    now_s = began_s
    for moment_s in (began_s + slots * slot_s, now_s):
        ends_s = slot_at(split, moment_s).ends_s
        assert moment_s < ends_s <= moment_s + slot_s * (1 + 1e-6) + 1e-6
        assert slot_at(split, ends_s).ends_s > ends_s
