"""A controller that parts its traffic in two arms."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.control.config import GovernorConfig
from mileage.control.controller import Controller
from mileage.control.experiment_config import ArmGovernor, ArmRouting, ExperimentPlan
from mileage.core.actions import Action, Dispatch, Hold, Join, WakeAt
from mileage.core.events import (
    Arrived,
    Cancelled,
    ConfigChanged,
    Event,
    ExperimentChanged,
    Finished,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from mileage.policy.experiment import ExperimentSplit, slot_at
from mileage.policy.limits.static import StaticConfig
from tests.support.controllers import arrive, controller, fail, request
from tests.support.experiments import told

_STATIC = GovernorConfig(policy="static", static=StaticConfig(limit=64))
_ONE = ArmGovernor(static=StaticConfig(limit=1))


def _plan(ratio: float = 0.5, *replicas: str, **fields: Any) -> ExperimentPlan:
    split = {"slot_s": None if replicas else 10.0, **fields.pop("split", {})}
    return ExperimentPlan(
        split=ExperimentSplit(name="trial", ratio=ratio, **split), replicas=replicas, **fields
    )


def _parted(*up: str, ratio: float = 0.5, **fields: Any) -> Controller:
    """Of the replicas a, b, c the last one is arm b's."""
    made = controller(*(up or ("a", "b", "c")), governor=_STATIC)
    made.handle(told(_plan(ratio, "c", **fields)), 0.0)
    return made


def _arm(c: Controller, request_id: int, **fields: Any) -> str:
    seen = c.arm_of(request(request_id, **fields))
    assert seen is not None
    return seen.arm


def _of_arm(c: Controller, arm: str) -> int:
    """The next request id of this arm, from 1000 on."""
    return next(n for n in range(1000, 2000) if _arm(c, n) == arm)


def _tell(c: Controller, event: Event, now_s: float = 0.0) -> list[Action]:
    return [a for a in c.handle(event, now_s) if isinstance(a, Dispatch | Hold | Join)]


def test_each_arms_requests_go_to_its_own_replicas() -> None:
    c = _parted()
    seen = {"a": set[str](), "b": set[str]()}
    for number in range(200):
        seen[_arm(c, number)].add(arrive(c, number, prefix_key=number))
        c.handle(Finished(number), 0.0)
    assert seen == {"a": {"a", "b"}, "b": {"c"}}


@pytest.mark.parametrize(
    ("ratio", "used"),
    [
        pytest.param(0.0, {"a", "b"}, id="rolled back: nothing goes to arm b"),
        pytest.param(1.0, {"c"}, id="promoted: all goes to arm b"),
    ],
)
def test_an_arm_without_traffic_is_left_alone(ratio: float, used: set[str]) -> None:
    c = _parted(ratio=ratio)
    assert {arrive(c, number) for number in range(50)} == used


@pytest.mark.parametrize("arm", ["a", "b"])
def test_where_none_of_an_arms_replicas_takes_requests_the_others_do(arm: str) -> None:
    c = _parted()
    for name in {"a": ("a", "b"), "b": ("c",)}[arm]:
        c.handle(ReplicaDown(name, "test"), 0.0)
    request_id = _of_arm(c, arm)
    assert arrive(c, request_id) in {"a": "c", "b": "ab"}[arm]


def test_failover_stays_inside_the_arm_first_and_then_crosses_rather_than_fail() -> None:
    c = _parted()
    request_id = _of_arm(c, "a")
    first = arrive(c, request_id)
    (second,) = fail(c, request_id, first)
    assert isinstance(second, Dispatch)
    assert {first, second.replica} == {"a", "b"}
    (third,) = fail(c, request_id, second.replica, "status")
    assert third == Dispatch(request_id, "c")


def test_a_model_that_only_one_arm_has_is_in_no_experiment() -> None:
    c = _parted()
    c.handle(ReplicaUp("a", ("llama", "solo")), 0.0)
    assert c.arm_of(request(1, model="solo")) is None
    assert c.arm_of(request(1, model="nonsense")) is None
    assert arrive(c, 1, model="solo") == "a"
    c.handle(ReplicaUp("c", ("llama", "solo")), 0.0)
    assert c.arm_of(request(1, model="solo")) is not None


def test_requests_share_an_answer_within_their_arm_only() -> None:
    c = _parted()
    arms: dict[str, list[int]] = {"a": [], "b": []}
    for number in range(40):
        arm = _arm(c, number)
        (action,) = _tell(c, Arrived(request(number, merge_key="same")))
        if arms[arm]:
            assert action == Join(number, arms[arm][0], "same")
        else:
            assert isinstance(action, Dispatch)
        arms[arm].append(number)
    assert arms["a"]
    assert arms["b"]


def test_each_arm_keeps_its_own_limits_at_the_same_time() -> None:
    c = _parted(governor=_ONE)
    held = {"a": 0, "b": 0}
    for number in range(40):
        (action,) = _tell(c, Arrived(request(number)))
        held[_arm(c, number)] += isinstance(action, Hold)
    assert held["a"] == 0
    assert held["b"] > 10
    assert {s.name: s.limit for s in c.replica_states()} == {"a": 64, "b": 64, "c": 1}


def test_the_limits_of_an_arm_outlive_a_restart_of_its_engine_and_a_reload() -> None:
    c = _parted(governor=_ONE)
    c.handle(ReplicaDown("c", "test"), 1.0)
    c.handle(ReplicaUp("c", ("llama",)), 2.0)
    c.handle(ConfigChanged(2, '{"governor":{"policy":"static","static":{"limit":32}}}'), 3.0)
    for number in range(40):
        c.handle(Arrived(request(number)), 4.0)
    c.handle(Woke(), 5.0)
    assert {s.name: s.limit for s in c.replica_states()} == {"a": 32, "b": 32, "c": 1}


def _held_in_b(c: Controller) -> list[int]:
    """Fill arm b, whose limit is 1; the requests that wait for it."""
    in_b = [number for number in range(40) if _arm(c, number) == "b"]
    held = []
    for number in in_b:
        (action,) = _tell(c, Arrived(request(number)))
        if isinstance(action, Hold):
            held.append(number)
    assert held
    return held


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ReplicaDown("c", "test"), id="all of its replicas are down"),
        pytest.param(told(_plan(0.0, "c", governor=_ONE)), id="it is rolled back"),
        pytest.param(told(None), id="the experiment ends"),
        pytest.param(told(_plan(0.5, "b", governor=_ONE)), id="another replica is arm b's"),
    ],
)
def test_what_waits_for_arm_b_is_not_lost(event: Event) -> None:
    c = _parted(governor=_ONE)
    waiting = set(_held_in_b(c))
    actions: list[Action] = list(c.handle(event, 1.0))
    for _ in range(40):
        for action in actions:
            if isinstance(action, Dispatch):
                waiting.discard(action.request_id)
        actions = []
        for number in range(40):
            actions += c.handle(Finished(number, 10, None, 10), 2.0)
    assert not waiting
    assert c.governor.held == 0


def test_a_canarys_next_step_leaves_what_runs_and_what_was_learned_alone() -> None:
    c = _parted(ratio=0.1)
    before = {r.name: r.throttle.policy for r in c._replicas}
    experiment = c.experiment
    c.handle(told(_plan(0.9, "c")), 1.0)
    assert c.experiment is experiment
    assert {r.name: r.throttle.policy for r in c._replicas} == before
    in_b = sum(_arm(c, number) == "b" for number in range(200))
    assert in_b > 150


def test_routing_of_its_own() -> None:
    """Without affinity, the conversations of arm b are spread over its replicas."""
    c = controller("a", "b", "c", governor=_STATIC, known=("a", "b", "c"))
    plan = _plan(1.0, "b", "c", routing=ArmRouting(affinity=False))
    c.handle(told(plan), 0.0)
    places = set()
    for number in range(50):
        places.add(arrive(c, number, prefix_key=7))
        c.handle(Cancelled(number), 0.0)
    assert places == {"b", "c"}
    c.handle(told(_plan(1.0, "b", "c")), 0.0)
    places = set()
    for number in range(50):
        places.add(arrive(c, number, prefix_key=7))
        c.handle(Cancelled(number), 0.0)
    assert len(places) == 1


# --- slots ------------------------------------------------------------------------------------


def _turns(plan: ExperimentPlan, arm: str) -> list[float]:
    """Middles of the slots of an arm."""
    middles = [10.0 * n + 5.0 for n in range(40)]
    return [at_s for at_s in middles if slot_at(plan.split, at_s).arm == arm]


def test_arms_that_share_their_replicas_take_turns() -> None:
    plan = _plan(0.5, governor=_ONE)
    c = controller("a", governor=_STATIC, known=("a",))
    wakes = [a.at_s for a in c.handle(told(plan), 0.0) if isinstance(a, WakeAt)]
    policies: dict[str, set[int]] = {"a": set(), "b": set()}
    for slot in range(40):
        now_s = 10.0 * slot
        assert min(wakes) <= now_s + 10.0
        wakes = [a.at_s for a in c.handle(Woke(), now_s) if isinstance(a, WakeAt)]
        arm = slot_at(plan.split, now_s).arm
        assert _arm(c, slot, arrived_s=now_s) == arm
        (replica,) = c._replicas
        policies[arm].add(id(replica.throttle.policy))
        c.handle(Arrived(request(slot, arrived_s=now_s)), now_s)
        assert [s.limit for s in c.replica_states()] == [64 if arm == "a" else 1]
        c.handle(Finished(slot, 10, None, 10), now_s + 1.0)
    # Each arm's policy is one and the same in all of its slots: it keeps what it learned.
    assert len(policies["a"]) == len(policies["b"]) == 1


def test_right_after_a_change_of_arm_requests_count_for_neither() -> None:
    plan = _plan(0.5, governor=_ONE, split={"washout_s": 2.0})
    c = controller("a", governor=_STATIC, known=("a",))
    c.handle(told(plan), 0.0)
    seen = c.arm_of(request(1, arrived_s=1.0))
    assert seen is not None
    assert not seen.counted
    seen = c.arm_of(request(1, arrived_s=3.0))
    assert seen is not None
    assert seen.counted


@pytest.mark.parametrize("arm", ["a", "b"])
def test_the_end_of_an_experiment_gives_arm_as_policy_back(arm: str) -> None:
    plan = _plan(0.5, governor=_ONE)
    c = controller("a", governor=_STATIC, known=("a",))
    (replica,) = c._replicas
    before = replica.throttle.policy
    at_s = _turns(plan, arm)[0]
    c.handle(told(plan), at_s)
    assert (replica.throttle.policy is before) is (arm == "a")
    c.handle(told(None), at_s + 1.0)
    assert c.experiment is None
    assert replica.throttle.policy is before
    assert c.arm_of(request(1)) is None


@pytest.mark.parametrize("settings", ["{}", "nonsense", '{"split":{"name":"x"}}'])
def test_settings_that_are_no_plan_change_nothing(settings: str) -> None:
    c = _parted()
    experiment = c.experiment
    assert c.handle(ExperimentChanged(settings), 1.0) == ()
    assert c.experiment is experiment
    assert c.ignored == 1
