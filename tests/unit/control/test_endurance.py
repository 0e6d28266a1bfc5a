"""What must hold after hours: nothing hangs, leaks, or stays locked, whatever came in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mileage.control.accounts import account_name, budget_amount
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Hold, Reject
from mileage.core.events import (
    Arrived,
    BudgetGranted,
    ConfigChanged,
    Failed,
    Finished,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
    Woke,
)
from mileage.core.request import Endpoint
from mileage.policy.limits.static import StaticConfig
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.controllers import controller, request

RICH = {"rich": TenantLimits(budgets=(BudgetConfig(amount=1000, unit="tokens", per="day"),))}
"""Its requests wait until the treasury has granted some of it."""


def governing(limit: int, **fields: Any) -> GovernorConfig:
    return GovernorConfig(policy="static", static=StaticConfig(limit=limit), **fields)


def governed(limit: int, *up: str, in_flight_max: int = 100_000, **sections: Any) -> Controller:
    made = controller(
        *(up or ("a",)), governor=governing(limit), in_flight_max=in_flight_max, **sections
    )
    made.handle(Woke(), 0.0)  # limits are decided
    return made


def arrive(c: Controller, request_id: int, now_s: float = 0.0, **fields: Any) -> Sequence[Action]:
    return c.handle(Arrived(request(request_id, arrived_s=now_s, **fields)), now_s)


def configure(c: Controller, now_s: float, **sections: Any) -> Sequence[Action]:
    text = msgspec.json.encode(ControlConfig(**sections)).decode()
    return c.handle(ConfigChanged(c.version + 1, text), now_s)


def sent(actions: Sequence[Action]) -> list[int]:
    return [action.request_id for action in actions if isinstance(action, Dispatch)]


def refused(actions: Sequence[Action]) -> dict[int, str]:
    return {a.request_id: a.reason for a in actions if isinstance(a, Reject)}


# --- past the bound -----------------------------------------------------------------------------


def test_what_the_oldest_made_room_for_is_told() -> None:
    c = governed(1, in_flight_max=2)
    arrive(c, 1)
    arrive(c, 2)
    assert sent(arrive(c, 3)) == [2]


def test_the_oldest_is_refused_where_it_runs_nowhere() -> None:
    c = governed(9, in_flight_max=2, tenants=RICH)
    arrive(c, 1, tenant="rich", output_tokens_max=10)
    arrive(c, 2)
    actions = arrive(c, 3)
    assert (refused(actions), sent(actions)) == ({1: "queue_full"}, [3])
    assert (c.forgotten, c.in_flight) == (1, 2)


# --- reload -------------------------------------------------------------------------------------


def test_what_runs_while_the_limits_are_taken_away_is_counted_out_all_the_same() -> None:
    limited = {"acme": TenantLimits(concurrency_max=1)}
    c = governed(9, tenants=limited)
    arrive(c, 1)
    configure(c, 1.0, governor=governing(9))
    c.handle(Finished(1, 10, 0, 5), 2.0)
    configure(c, 3.0, governor=governing(9), tenants=limited)
    assert sent(arrive(c, 2, 4.0)) == [2]


def test_a_budget_holds_when_the_governor_is_turned_off() -> None:
    c = governed(1, tenants=RICH)
    arrive(c, 1)
    arrive(c, 2)
    arrive(c, 3, tenant="rich", output_tokens_max=10)
    actions = configure(c, 1.0, governor=governing(1, mode="off"), tenants=RICH)
    assert sent(actions) == [2]


def test_observing_lets_go_what_waits_for_a_budget() -> None:
    c = governed(9, tenants=RICH)
    arrive(c, 1, tenant="rich", output_tokens_max=10)
    assert sent(configure(c, 1.0, governor=governing(9, mode="observe"), tenants=RICH)) == [1]


def test_what_waits_for_a_budget_is_sent_where_its_model_has_come_back() -> None:
    c = governed(9, tenants=RICH)
    arrive(c, 1, tenant="rich", output_tokens_max=10)
    c.handle(ReplicaUp("a", ()), 1.0)
    c.handle(ReplicaUp("b", ("llama",)), 1.1)
    account = account_name("rich", RICH["rich"].budgets[0])
    actions = c.handle(BudgetGranted(account, 0, 1000, 100.0, last=True), 2.0)
    assert Dispatch(1, "b") in actions


# --- replicas -----------------------------------------------------------------------------------


def test_what_is_held_goes_to_any_replica_of_the_model_whatever_it_lists_first() -> None:
    c = controller(governor=governing(1), known=("a", "b"))
    c.handle(ReplicaUp("a", ("one", "llama")), 0.0)
    c.handle(ReplicaUp("b", ("two", "llama")), 0.0)
    arrive(c, 1)
    arrive(c, 2)
    arrive(c, 3)
    c.handle(ReplicaDown("a", "gone"), 1.0)
    done = [c.handle(Finished(i, 10, 0, 5), 2.0) for i in (1, 2)]
    assert [*sent(done[0]), *sent(done[1])] == [3]


def test_what_comes_later_waits_behind_what_is_held_for_the_same_replica() -> None:
    c = controller(governor=governing(1), known=("a", "b"))
    c.handle(ReplicaUp("a", ("one", "llama")), 0.0)
    c.handle(ReplicaUp("b", ("two", "llama")), 0.0)
    for i in (1, 2, 3, 4):
        arrive(c, i)
    assert sent(arrive(c, 5, 1.0, model="two")) == []
    assert [sent(c.handle(Finished(i, 10, 0, 5), 2.0)) for i in (1, 2)] == [[3], [4]]


def test_what_is_held_goes_to_a_replica_that_has_the_endpoint_since_a_reload() -> None:
    lacks: dict[str, tuple[Endpoint, ...]] = {"b": ("messages",)}
    c = controller("a", "b", governor=governing(1), known=("a", "b"), lacks=lacks)
    c.handle(Woke(), 0.0)
    arrive(c, 1, endpoint="messages")
    arrive(c, 2, endpoint="messages")
    actions = configure(c, 1.0, governor=governing(1), replicas=("a", "b"))
    assert sent(actions) == [2]


def test_what_is_held_for_an_endpoint_is_refused_when_the_model_goes() -> None:
    lacks: dict[str, tuple[Endpoint, ...]] = {"b": ("messages",)}
    c = controller("a", "b", governor=governing(1), known=("a", "b"), lacks=lacks)
    c.handle(Woke(), 0.0)
    arrive(c, 1, endpoint="messages")
    arrive(c, 2, endpoint="messages")
    c.handle(ReplicaUp("b", ()), 1.0)
    assert refused(c.handle(ReplicaUp("a", ()), 1.0)) == {2: "no_replica"}


def test_a_replica_that_is_up_again_runs_this_workers_share() -> None:
    c = governed(8)
    c.handle(ShareChanged(0.25), 0.0)
    c.handle(ReplicaDown("a", "restarts"), 1.0)
    c.handle(ReplicaUp("a", ("llama",)), 2.0)
    first = [sent(arrive(c, i, 3.0)) for i in range(1, 4)]
    assert first == [[1], [2], []]


def test_replicas_that_come_and_go_leave_nothing_in_the_fleet() -> None:
    c = controller("a", known=("a",))
    for generation in range(5):
        names = ("a", f"b{generation}")
        configure(c, float(generation), replicas=names)
        c.handle(ReplicaUp(names[1], ("llama",)), float(generation))
    a = next(replica for replica in c.governor.replicas if replica.name == "a")
    assert len(a._rates._members) == 2


# --- costs --------------------------------------------------------------------------------------


def test_costs_are_known_however_many_were_never_asked_for() -> None:
    c = controller("a")
    for i in range(10_050):
        arrive(c, i)
        c.handle(Finished(i, 10, 0, 5), 0.0)
    assert c.spend_of(10_049) is not None


def test_an_engines_nonsense_locks_no_tenant_out() -> None:
    c = governed(1)
    arrive(c, 1, tenant="mad")
    arrive(c, 2, tenant="mad")
    assert sent(c.handle(Finished(1, 10, 0, 5), 1.0)) == [2]
    arrive(c, 3, 1.0)
    c.handle(Finished(2, 10, 0, 10**9), 2.0)
    now_s, served = 2.0, []
    for i in range(10, 60):
        now_s += 1.0
        arrive(c, 2 * i, now_s, tenant="mad")
        arrive(c, 2 * i + 1, now_s)
    running = 3
    for _ in range(50):
        now_s += 0.1
        (running,) = sent(c.handle(Finished(running, 10, 0, 5), now_s))
        served.append(running % 2)
    assert 15 < sum(served) < 35


def test_a_request_that_stalled_once_does_not_cost_its_tenant_the_budget_for_ever() -> None:
    budget = BudgetConfig(amount=60, unit="gpu_s", per="hour")
    c = governed(9, tenants={"rich": TenantLimits(budgets=(budget,))})
    name, hour_ns = account_name("rich", budget), budget_amount(budget)

    def serve(request_id: int, now_s: float, took_s: float) -> bool:
        """Whether a request is served, which takes so long."""
        said = arrive(c, request_id, now_s, tenant="rich", output_tokens_max=10)
        if isinstance(said[0], Hold):
            window = int(now_s // 3600)
            end_s = 3600.0 - now_s % 3600
            said = c.handle(BudgetGranted(name, window, hour_ns, end_s, last=True), now_s)
        if sent(said):
            c.handle(Finished(request_id, 10, 0, 10), now_s + took_s)
        return sent(said) == [request_id]

    assert all(serve(i, float(i), 0.1) for i in range(10))
    assert serve(10, 10.0, 500.0)
    assert [serve(i, 3600.0 + 120.0 * i, 0.1) for i in range(11, 19)] == [*[False] * 7, True]


# --- failure ------------------------------------------------------------------------------------


def test_a_failed_attempt_is_answered_although_the_controller_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = governed(9, "a", "b")
    went_to = next(a.replica for a in arrive(c, 1) if isinstance(a, Dispatch))

    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("mileage.control.controller.next_replica", bug)
    actions = c.handle(Failed(1, went_to, "connect", True), 1.0)
    assert sent(actions) == [1] or refused(actions) == {1: "upstream_failed"}
    assert c.failure == "RuntimeError: a bug"


def test_what_was_decided_before_the_controller_failed_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = governed(1)
    for i in (1, 2, 3):
        arrive(c, i)

    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(c.governor), "probes", bug)
    actions = configure(c, 1.0, governor=governing(2))
    assert sorted(sent(actions)) == [2, 3]


def test_a_refusal_is_told_too_when_the_controller_fails_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = governed(1)
    arrive(c, 1)
    arrive(c, 2)
    arrive(c, 3, 50.0)

    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(c.governor), "probes", bug)
    actions = c.handle(Woke(), 70.0)
    assert (refused(actions), sent(actions)) == ({2: "deadline"}, [3])


def test_nothing_is_merged_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    c = governed(9)

    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(c._dispatcher.merges), "find", bug)
    assert sent(arrive(c, 1, merge_key="k")) == [1]
    assert sent(arrive(c, 2, merge_key="k")) == [2]
