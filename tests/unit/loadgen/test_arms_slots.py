"""Orders of the arms, stretches of a workload, and what each arm is sent of them."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.loadgen.arms_slots import ArmCalls, Portions, both, orders
from mileage.loadgen.plan_options import PlanOptions
from mileage.workload.trace_request import TraceRequest

OPTIONS = PlanOptions(model="m", seed=7)


def requests(*arrived_s: float, prefix: tuple[int, ...] = ()) -> list[TraceRequest]:
    return [
        TraceRequest(
            arrived_s=at_s,
            prompt_tokens=64,
            output_tokens=4,
            prefix_blocks=prefix,
            block_tokens=16 if prefix else 0,
        )
        for at_s in arrived_s
    ]


def taken(portions: Portions, times: int) -> list[list[float]]:
    return [[round(r.arrived_s, 9) for r in portions.take()] for _ in range(times)]


@pytest.mark.parametrize("seed", range(20))
def test_each_arm_comes_first_in_one_of_each_two_pairs(seed: int) -> None:
    drawn = list(itertools.islice(orders(seed), 40))
    for first, second in zip(drawn[::2], drawn[1::2], strict=True):
        assert {first, second} == {("a", "b"), ("b", "a")}
    assert drawn == list(itertools.islice(orders(seed), 40))


def test_which_arm_begins_is_drawn() -> None:
    drawn = list(itertools.islice(orders(1), 80))[::2]
    assert 10 < drawn.count(("a", "b")) < 30
    assert drawn != list(itertools.islice(orders(2), 80))[::2]


def test_stretches_begin_at_0_and_leave_nothing_out() -> None:
    portions = Portions(requests(0.0, 0.9, 1.0, 1.5, 3.25), slot_s=1.0)
    assert taken(portions, 4) == [[0.0, 0.9], [0.0, 0.5], [], [0.25]]
    assert portions.rounds == 1


def test_a_workload_that_ends_begins_anew() -> None:
    portions = Portions(requests(0.0, 1.5), slot_s=1.0)
    assert taken(portions, 4) == [[0.0], [0.5], [0.0], [0.5]]
    assert portions.rounds == 2


def test_stretches_by_count_for_clients_without_a_schedule() -> None:
    portions = Portions(requests(0.0, 5.0, 9.0), slot_s=1.0, count=2)
    assert taken(portions, 3) == [[0.0, 5.0], [0.0], [0.0, 5.0]]


def test_a_workload_without_a_request_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one request"):
        Portions([], slot_s=1.0).take()


def bodies(arm: ArmCalls, times: int, prefix: tuple[int, ...] = ()) -> list[bytes]:
    return [
        call.body
        for pair in range(times)
        for call in arm.of(requests(0.0, 0.1, prefix=prefix), pair=pair)
    ]


def test_arms_of_two_endpoints_are_sent_the_same() -> None:
    a, b = (ArmCalls(arm, OPTIONS, share_cache=False) for arm in ("a", "b"))
    assert bodies(a, 3) == bodies(b, 3)


def test_arms_that_share_a_cache_are_never_sent_the_same_text() -> None:
    a, b = (ArmCalls(arm, OPTIONS, share_cache=True) for arm in ("a", "b"))
    texts = bodies(a, 3) + bodies(b, 3)
    assert len(set(texts)) == len(texts)
    starts = {_prompt(body)[:24] for body in texts}
    assert len(starts) == len(texts)


def test_prefixes_are_shared_within_an_arm_and_not_with_the_other() -> None:
    a, b = (
        [_prompt(body)[:60] for body in bodies(ArmCalls(arm, OPTIONS, share_cache=True), 2, (5, 6))]
        for arm in ("a", "b")
    )
    assert len(set(a)) == len(set(b)) == 1
    assert a[0] != b[0]


def test_calls_know_their_arm_pair_and_place() -> None:
    arm = ArmCalls("b", OPTIONS, share_cache=True)
    calls = [call for pair in (0, 1) for call in arm.of(requests(0.0, 0.5), pair=pair, target=1)]
    assert [(c.arm, c.block, c.index, c.target, c.scheduled_s) for c in calls] == [
        ("b", 0, 0, 1, 0.0),
        ("b", 0, 1, 1, 0.5),
        ("b", 1, 2, 1, 0.0),
        ("b", 1, 3, 1, 0.5),
    ]


def test_mirrored_calls_leave_at_the_same_times_in_drawn_order() -> None:
    a, b = (
        ArmCalls(arm, OPTIONS, share_cache=False).of(requests(*(i / 10 for i in range(40))), pair=0)
        for arm in ("a", "b")
    )
    merged = both(a, b, seed=3)
    assert [c.scheduled_s for c in merged] == sorted(c.scheduled_s for c in [*a, *b])
    firsts = [one.arm for one in merged[::2]]
    assert 8 < firsts.count("a") < 32


def _prompt(body: bytes) -> str:
    return str(msgspec.json.decode(body)["messages"][-1]["content"])
