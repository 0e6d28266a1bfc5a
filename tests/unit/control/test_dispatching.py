"""What the controller says about requests that are held, joined, unfunded; and when parts fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mileage.control.config import ControlConfig, CostsConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, AskBudget, Dispatch, Hold, Join, Reject, WakeAt
from mileage.core.events import (
    Arrived,
    BudgetGranted,
    Cancelled,
    ConfigChanged,
    Failed,
    Finished,
    FirstToken,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
    Woke,
)
from mileage.core.slo import SloConfig
from mileage.policy.limits.limit import LimitSignals
from mileage.policy.limits.static import StaticConfig
from mileage.policy.merging import MergingConfig
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.controllers import controller, request


def governed(limit: int, *up: str, mode: str = "act", **sections: Any) -> Controller:
    governor = GovernorConfig(mode=mode, policy="static", static=StaticConfig(limit=limit))  # type: ignore[arg-type]
    made = controller(*(up or ("a",)), governor=governor, **sections)
    made.handle(Woke(), 0.0)  # limits are decided
    return made


def kinds(actions: Sequence[Action]) -> list[type]:
    return [type(action) for action in actions]


def arrive(c: Controller, request_id: int, now_s: float = 0.0, **fields: Any) -> Sequence[Action]:
    return c.handle(Arrived(request(request_id, arrived_s=now_s, **fields)), now_s)


def test_a_request_above_the_limit_is_held_until_one_ends() -> None:
    c = governed(1)
    assert kinds(arrive(c, 1)) == [Dispatch]
    assert kinds(arrive(c, 2)) == [Hold, WakeAt]
    assert c.handle(Finished(1, 10, 0, 5), 1.0) == [Dispatch(2, "a")]
    assert c.handle(Finished(2, 10, 0, 5), 2.0) == ()
    assert c.in_flight == 0


def test_a_failed_attempt_makes_room_too() -> None:
    c = governed(1)
    arrive(c, 1)
    arrive(c, 2)
    actions = c.handle(Failed(1, "a", "broken", retryable=False), 1.0)
    assert Dispatch(2, "a") in actions


def test_a_retry_goes_at_once_whatever_is_held() -> None:
    c = governed(1, "a", "b")
    first = [arrive(c, i) for i in (1, 2)]
    assert kinds(arrive(c, 3))[0] is Hold
    (sent,) = first[0]
    assert isinstance(sent, Dispatch)
    other = {"a": "b", "b": "a"}[sent.replica]
    actions = c.handle(Failed(1, sent.replica, "connect", retryable=True), 1.0)
    assert actions[0] == Dispatch(1, other)
    assert Dispatch(3, sent.replica) in actions


def test_held_requests_are_refused_when_the_last_replica_goes() -> None:
    c = governed(1)
    arrive(c, 1)
    arrive(c, 2)
    actions = c.handle(ReplicaDown("a", "gone"), 1.0)
    assert Reject(2, "no_replica", None) in actions


def test_a_replica_that_comes_takes_what_is_held() -> None:
    c = governed(1, "a")
    arrive(c, 1)
    arrive(c, 2)
    assert Dispatch(2, "b") in c.handle(ReplicaUp("b", ("llama",)), 1.0)


def test_a_share_of_the_limit_is_at_least_one() -> None:
    c = governed(4)
    c.handle(ShareChanged(0.5), 1.0)
    c.handle(Woke(), 2.0)
    assert [kinds(arrive(c, i, 2.0))[0] for i in range(1, 4)] == [Dispatch, Dispatch, Hold]
    c = governed(4)
    c.handle(ShareChanged(0.01), 1.0)
    c.handle(Woke(), 2.0)
    assert [kinds(arrive(c, i, 2.0))[0] for i in (1, 2)] == [Dispatch, Hold]


def test_identical_requests_share_one_generation() -> None:
    c = governed(8)
    assert kinds(arrive(c, 1, merge_key="k")) == [Dispatch]
    assert arrive(c, 2, merge_key="k") == (Join(2, 1, "same"),)
    assert kinds(arrive(c, 3, merge_key="other")) == [Dispatch]
    assert kinds(arrive(c, 4, merge_key="k", tenant="rival")) == [Dispatch]
    c.handle(Finished(1, 10, 0, 5), 1.0)
    assert kinds(arrive(c, 5, 1.0, merge_key="k")) == [Dispatch]


def test_a_generation_goes_on_until_the_last_member_has_left() -> None:
    c = governed(1)
    arrive(c, 1, merge_key="k")
    arrive(c, 2, merge_key="k")
    arrive(c, 3)
    assert c.handle(Cancelled(1), 0.5) == ()
    assert c.handle(Cancelled(2), 0.6) == [Dispatch(3, "a")]
    assert c.in_flight == 1


def test_a_held_leader_that_leaves_keeps_its_place_for_the_others() -> None:
    c = governed(1)
    arrive(c, 1)
    arrive(c, 2, merge_key="k")
    assert arrive(c, 3, merge_key="k") == (Join(3, 2, "same"),)
    assert c.handle(Cancelled(2), 0.5) == ()
    assert c.handle(Finished(1, 10, 0, 5), 1.0) == [Dispatch(2, "a")]


def test_what_joined_pays_its_part() -> None:
    c = governed(8)
    for i in (1, 2, 3):
        arrive(c, i, merge_key="k")
    c.handle(Finished(1, 10, 0, 6), 2.0)
    spends = [c.intake.take_spend(i) for i in (1, 2, 3)]
    assert [spend and spend.tokens for spend in spends] == [6, 5, 5]
    assert sum(spend.gpu_ns for spend in spends if spend) == 2_000_000_000
    assert c.intake.take_spend(1) is None


def embedding(c: Controller, request_id: int, now_s: float = 0.0) -> Sequence[Action]:
    fields = {"endpoint": "embeddings", "stream": False, "batch_key": "e"}
    return arrive(c, request_id, now_s, **fields)


def test_embeddings_that_come_together_go_in_one_call() -> None:
    merging = MergingConfig(batch_load_min=2, batch_items_max=4)
    c = governed(100, merging=merging)
    sent = [embedding(c, i, i * 1e-4) for i in range(1, 30)]
    flat = [kinds(actions)[0] for actions in sent]
    assert Hold in flat
    assert flat.count(Join) > 12
    calls = sum(isinstance(a, Dispatch) for actions in sent for a in actions)
    calls += sum(isinstance(a, Dispatch) for a in c.handle(Woke(), 1.0))
    assert calls < 15
    joined = [a for actions in sent for a in actions if isinstance(a, Join)]
    assert all(a.kind == "batch" for a in joined)
    assert c.in_flight == calls


def test_who_leaves_before_the_call_is_sent_makes_room_in_it() -> None:
    c = governed(100, merging=MergingConfig(batch_load_min=0, batch_items_max=3))
    for i in range(1, 10):
        sent = embedding(c, i, i * 1e-4)
    assert sent == (Join(9, 8, "batch"),)
    assert c.handle(Cancelled(9), 9e-4) == ()
    assert embedding(c, 10, 1e-3) == (Join(10, 8, "batch"),)
    assert embedding(c, 11, 1.1e-3) == (Join(11, 8, "batch"), Dispatch(8, "a"))
    c.handle(Finished(8, 30, 0, None), 1.0)
    assert [c.intake.take_spend(i) is not None for i in (8, 9, 10, 11)] == [True, False, True, True]


def test_below_the_load_an_embedding_is_not_held() -> None:
    c = governed(100)
    for i in range(10):
        assert kinds(embedding(c, i, i * 1e-4)) == [Dispatch]
        c.handle(Finished(i, 10, 0, None), i * 1e-4 + 5e-5)


def test_observing_merges_nothing_and_holds_to_no_tenants_limit() -> None:
    tenants = {"acme": TenantLimits(concurrency_max=2)}
    c = governed(1, mode="observe", tenants=tenants, merging=MergingConfig(batch_load_min=0))
    for i in range(1, 5):
        assert kinds(arrive(c, i, merge_key="k")) == [Dispatch]
    for i in range(5, 9):
        assert kinds(embedding(c, i)) == [Dispatch]
    state = c.governor.state()
    assert state.would_merge_total == 3
    assert state.would_refuse_total == 6
    assert not state.refused_total


def budgeted(amount: float) -> Controller:
    budget = BudgetConfig(amount=amount, unit="tokens", per="day")
    return governed(1000, tenants={"acme": TenantLimits(budgets=(budget,))})


def test_a_budget_is_asked_for_and_the_request_waits_for_it() -> None:
    c = budgeted(10_000)
    actions = arrive(c, 1, output_tokens_max=10, prompt_tokens_max=100)
    assert kinds(actions) == [Hold, AskBudget, WakeAt]
    ask = actions[1]
    assert isinstance(ask, AskBudget)
    granted = BudgetGranted(ask.account, 7, 10_000, renews_s=3600.0)
    assert c.handle(granted, 0.1)[0] == Dispatch(1, "a")


def test_a_spent_budget_refuses_until_the_next_window() -> None:
    c = budgeted(1000)
    arrive(c, 1, output_tokens_max=10, prompt_tokens_max=100)
    actions = c.handle(BudgetGranted("acme/tokens/day", 7, 0, renews_s=3600.0, last=True), 0.1)
    (refusal,) = [a for a in actions if isinstance(a, Reject)]
    assert refusal.reason == "budget_exhausted"
    assert refusal.retry_after_s == pytest.approx(3600.0)
    assert c.in_flight == 0


def test_of_many_at_once_as_many_as_the_budget_holds_are_served() -> None:
    """500 at once against a budget for 100: no overspend, at least 95 served."""
    cost = 120
    c = budgeted(100 * cost)
    running: list[int] = []
    served, refused = 0, 0

    def take(actions: Sequence[Action]) -> None:
        nonlocal refused
        for action in actions:
            if isinstance(action, Dispatch):
                running.append(action.request_id)
            elif isinstance(action, Reject):
                assert action.reason == "budget_exhausted"
                refused += 1
            elif isinstance(action, AskBudget) and granted:
                take(
                    c.handle(BudgetGranted(action.account, 7, 0, renews_s=3600.0, last=True), now_s)
                )

    now_s, granted = 0.0, False
    for i in range(1, 501):
        take(arrive(c, i, output_tokens_max=20, prompt_tokens_max=400))
    granted = True
    take(
        c.handle(BudgetGranted("acme/tokens/day", 7, 100 * cost, renews_s=3600.0, last=False), 0.1)
    )
    assert 0 < len(running) <= 30
    now_s = 0.2
    while running:
        now_s += 0.01
        request_id = running.pop(0)
        served += 1
        take(c.handle(Finished(request_id, 100, 0, 20), now_s))
    spent = [spend.spent for spend in c.intake.spends()]
    assert spent == [served * cost]
    assert 95 <= served <= 100
    assert served + refused == 500


def test_a_budget_in_usd_needs_a_price() -> None:
    from mileage.core.errors import ConfigError

    tenants = {"a": TenantLimits(budgets=(BudgetConfig(amount=1, unit="usd", per="day"),))}
    with pytest.raises(ConfigError, match="usd_per_gpu_hour"):
        ControlConfig(tenants=tenants)
    ControlConfig(tenants=tenants, costs=CostsConfig(usd_per_gpu_hour=2.0))


def test_a_rate_refuses_with_the_time_to_wait() -> None:
    c = governed(1000, tenants={"acme": TenantLimits(requests_per_min=2)})
    assert [kinds(arrive(c, i))[0] for i in (1, 2, 3)] == [Dispatch, Dispatch, Reject]
    (refusal,) = arrive(c, 4)
    assert isinstance(refusal, Reject)
    assert refusal.reason == "rate_limited"
    assert refusal.retry_after_s == pytest.approx(30.0)
    assert kinds(arrive(c, 5, 30.1))[0] is Dispatch


def test_concurrency_counts_what_is_held_and_frees_what_ends() -> None:
    c = governed(1, tenants={"acme": TenantLimits(concurrency_max=2)})
    assert [kinds(arrive(c, i))[0] for i in (1, 2, 3)] == [Dispatch, Hold, Reject]
    c.handle(Cancelled(2), 0.1)
    assert kinds(arrive(c, 4, 0.1))[0] is Hold


def settings(**sections: Any) -> str:
    return msgspec.json.encode(ControlConfig(**sections)).decode()


def test_a_new_configuration_takes_hold_at_once() -> None:
    c = governed(1)
    for i in (1, 2, 3):
        arrive(c, i)
    wider = GovernorConfig(policy="static", static=StaticConfig(limit=2))
    actions = c.handle(ConfigChanged(2, settings(governor=wider)), 1.0)
    assert Dispatch(2, "a") in actions
    assert c.version == 2
    off = GovernorConfig(mode="off")
    assert Dispatch(3, "a") in c.handle(ConfigChanged(3, settings(governor=off)), 2.0)
    assert kinds(arrive(c, 4, 2.0)) == [Dispatch]


def test_a_lower_limit_drains_what_runs() -> None:
    c = governed(4)
    for i in range(1, 5):
        assert kinds(arrive(c, i)) == [Dispatch]
    lower = GovernorConfig(policy="static", static=StaticConfig(limit=2))
    c.handle(ConfigChanged(2, settings(governor=lower)), 1.0)
    arrive(c, 5, 1.0)
    assert c.handle(Finished(1, 10, 0, 5), 1.1) == []
    assert c.handle(Finished(2, 10, 0, 5), 1.2) == []
    assert c.handle(Finished(3, 10, 0, 5), 1.3) == [Dispatch(5, "a")]


@pytest.mark.parametrize("text", ["", "{", '{"governor": {"policy": "magic"}}', '{"slo": 3}'])
def test_settings_that_are_none_leave_the_old_ones(text: str) -> None:
    c = governed(1)
    c.handle(ConfigChanged(2, text), 1.0)
    assert (c.version, c.ignored, c.failure) == (1, 1, None)
    arrive(c, 1)
    assert kinds(arrive(c, 2))[0] is Hold


class Broken:
    """A policy with a bug."""

    def update(self, signals: LimitSignals, now_s: float) -> Any:
        raise ZeroDivisionError("float division by zero")


def test_a_policy_that_raises_is_left_out_and_that_is_shown() -> None:
    c = governed(1)
    arrive(c, 1)
    arrive(c, 2)
    throttle = next(iter(c.governor.replicas)).throttle
    throttle.use(Broken())
    actions = c.handle(Woke(), 5.0)
    assert Dispatch(2, "a") in actions
    assert c.failure is None
    state = c.replica_states()[0]
    assert state.limit == GovernorConfig().limit_max
    assert "the policy failed: ZeroDivisionError" in (state.limit_reason or "")


def test_a_controller_that_fails_lets_everything_through(monkeypatch: pytest.MonkeyPatch) -> None:
    c = governed(1, slo=SloConfig(ttft_s=100.0))
    arrive(c, 1)
    arrive(c, 2)

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(c.governor), "place", bug)
    actions = arrive(c, 3)
    assert sorted(a.request_id for a in actions if isinstance(a, Dispatch)) == [2, 3]
    assert c.failure == "RuntimeError: a bug"
    assert kinds(arrive(c, 4)) == [Dispatch]
    monkeypatch.undo()
    one = GovernorConfig(policy="static", static=StaticConfig(limit=1))
    c.handle(ConfigChanged(2, settings(governor=one)), 9.0)
    assert getattr(c, "failure", "") is None
    assert kinds(arrive(c, 5, 9.0))[0] is Hold


def test_a_cut_stream_is_charged_what_was_seen_of_it_and_no_more_than_reserved() -> None:
    c = budgeted(100_000)
    arrive(c, 1, output_tokens_max=400, prompt_tokens_max=100)
    c.handle(BudgetGranted("acme/tokens/day", 7, 100_000, renews_s=3600.0), 0.1)
    c.handle(FirstToken(1), 0.5)
    c.handle(Cancelled(1, 127), 3.0)
    (spend,) = c.intake.spends()
    assert 127 < spend.spent <= 127 + 500
    arrive(c, 2, 4.0, output_tokens_max=50, prompt_tokens_max=100)
    c.handle(Cancelled(2), 3604.0)
    (after,) = c.intake.spends()
    assert after.spent - spend.spent <= 50 + 500
    assert after.reserved == 0


def test_observing_counts_a_request_once() -> None:
    c = governed(1, mode="observe", tenants={"acme": TenantLimits(requests_per_min=1)})
    for i in range(1, 11):
        arrive(c, i)
    state = c.governor.state()
    assert state.would_refuse_total + state.would_hold_total == 9


def test_held_requests_are_told_when_their_time_is_up() -> None:
    c = governed(1, slo=SloConfig(ttft_s=1.0))
    arrive(c, 1)
    actions = arrive(c, 2, 0.2)
    assert kinds(actions) == [Hold, WakeAt]
    (wake,) = [a for a in c.handle(Woke(), 1.19) if isinstance(a, WakeAt)]
    assert wake.at_s == pytest.approx(1.2)
    refused = [a for a in c.handle(Woke(), wake.at_s) if isinstance(a, Reject)]
    assert [(r.request_id, r.reason) for r in refused] == [(2, "deadline")]
