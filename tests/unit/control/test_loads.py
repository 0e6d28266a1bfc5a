"""Loads: requests for a model that sleeps are held, it is asked for once, and none is lost."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from mileage.control.config import GovernorConfig, LoadsConfig
from mileage.control.controller import Controller
from mileage.control.flight import Flight
from mileage.control.snapshot import dump_state, restore_state
from mileage.core.actions import Action, Dispatch, Hold, Load, Reject, SetLimit, WakeAt
from mileage.core.events import (
    Arrived,
    Cancelled,
    Failed,
    Finished,
    Loadable,
    LoadFailed,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from mileage.core.slo import SloConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.merging import MergingConfig
from tests.support.controllers import arrive, controller, request


def asleep(**sections: Any) -> Controller:
    """A controller before the replica `a`, which sleeps and would load the model llama."""
    made = controller(**sections)
    made.handle(ReplicaDown("a", "asleep"), 0.0)
    made.handle(Loadable("a", ("llama",)), 0.0)
    return made


def said(actions: Sequence[Action]) -> list[Action]:
    """Without limits and alarms."""
    return [each for each in actions if not isinstance(each, SetLimit | WakeAt)]


def test_a_request_for_a_model_that_sleeps_is_held_and_the_model_asked_for_once() -> None:
    c = asleep()
    assert said(c.handle(Arrived(request(1)), 0.0)) == [Hold(1), Load("llama")]
    assert said(c.handle(Arrived(request(2)), 0.1)) == [Hold(2)]
    up = said(c.handle(ReplicaUp("a", ("llama",)), 5.0))
    assert up == [Dispatch(1, "a"), Dispatch(2, "a")]
    assert arrive(c, 3, 5.0) == "a"


def test_a_model_that_was_up_and_went_to_sleep_is_asked_for_again() -> None:
    c = asleep()
    c.handle(ReplicaUp("a", ("llama",)), 0.0)
    arrive(c, 1)
    c.handle(Finished(1, 10, 0, 10), 1.0)
    c.handle(ReplicaDown("a", "asleep"), 2.0)
    assert said(c.handle(Arrived(request(2)), 3.0)) == [Hold(2), Load("llama")]
    assert said(c.handle(ReplicaUp("a", ("llama",)), 5.0)) == [Dispatch(2, "a")]


def test_while_one_replica_has_the_model_no_other_is_woken() -> None:
    c = asleep()
    c.handle(ReplicaUp("b", ("llama",)), 0.0)
    assert arrive(c, 1) == "b"


def test_an_adapter_is_asked_for_at_a_replica_that_is_up() -> None:
    c = controller("a")
    c.handle(Loadable("a", ("tuned",)), 0.0)
    assert said(c.handle(Arrived(request(1, "tuned")), 0.0)) == [Hold(1), Load("tuned")]
    assert arrive(c, 2) == "a"
    assert said(c.handle(ReplicaUp("a", ("llama", "tuned")), 1.0)) == [Dispatch(1, "a")]


def test_a_model_that_nobody_would_load_is_not_found() -> None:
    c = asleep()
    assert c.handle(Arrived(request(1, "other")), 0.0) == (Reject(1, "model_not_found"),)


def test_a_load_that_failed_refuses_what_waits_and_is_not_tried_again_too_soon() -> None:
    c = asleep()
    c.handle(Arrived(request(1)), 0.0)
    c.handle(Arrived(request(2)), 0.0)
    failed = said(c.handle(LoadFailed("llama", "no memory", 10.0), 2.0))
    assert failed == [Reject(n, "load_failed", 10.0, "no memory") for n in (1, 2)]
    early = said(c.handle(Arrived(request(3, arrived_s=5.0)), 5.0))
    assert early == [Reject(3, "load_failed", 7.0, "no memory")]
    later = said(c.handle(Arrived(request(4, arrived_s=12.0)), 12.0))
    assert later == [Hold(4), Load("llama")]
    assert said(c.handle(ReplicaUp("a", ("llama",)), 13.0)) == [Dispatch(4, "a")]


def test_the_queue_of_a_model_is_bounded() -> None:
    c = asleep(loads=LoadsConfig(queue_max=1))
    c.handle(Arrived(request(1)), 0.0)
    (refusal,) = said(c.handle(Arrived(request(2)), 0.0))
    assert isinstance(refusal, Reject)
    assert refusal.reason == "queue_full"


def test_a_request_is_held_no_longer_than_it_may_be() -> None:
    c = asleep(loads=LoadsConfig(wait_max_s=30.0))
    assert WakeAt(30.0) in c.handle(Arrived(request(1)), 0.0)
    assert said(c.handle(Woke(), 29.0)) == []
    (refusal,) = said(c.handle(Woke(), 30.0))
    assert isinstance(refusal, Reject)
    assert (refusal.reason, c.in_flight) == ("deadline", 0)


def test_targets_count_from_when_the_model_is_there() -> None:
    c = asleep(slo=SloConfig(ttft_s=1.0), governor=GovernorConfig(reject_late=True))
    c.handle(Arrived(request(1)), 0.0)
    assert said(c.handle(ReplicaUp("a", ("llama",)), 20.0)) == [Dispatch(1, "a")]


def test_who_leaves_while_it_waits_is_forgotten() -> None:
    c = asleep()
    c.handle(Arrived(request(1)), 0.0)
    c.handle(Cancelled(1), 1.0)
    assert (c.in_flight, said(c.handle(ReplicaUp("a", ("llama",)), 2.0))) == (0, [])


def test_of_many_who_leave_nothing_is_kept() -> None:
    c, before = asleep(), flights()
    c.handle(Arrived(request(0)), 0.0)  # stays, before all others
    for number in range(1, 1000):
        c.handle(Arrived(request(number)), 0.01 * number)
        c.handle(Cancelled(number), 0.01 * number + 0.005)
    assert c.in_flight == 1
    assert flights() - before <= 100, "though each might have waited for minutes"


def flights() -> int:
    """How many there are in memory."""
    return sum(isinstance(each, Flight) for each in gc.get_objects())


def test_what_is_held_is_refused_when_nobody_would_load_it_any_more() -> None:
    c = asleep()
    c.handle(Arrived(request(1)), 0.0)
    assert said(c.handle(Loadable("a", ()), 1.0)) == [Reject(1, "no_replica")]


def test_a_loadable_replica_that_is_not_configured_is_ignored() -> None:
    c = controller()
    c.handle(Loadable("elsewhere", ("llama",)), 0.0)
    assert c.ignored == 1


def test_requests_that_are_held_outlive_a_snapshot() -> None:
    c = asleep()
    c.handle(Arrived(request(1)), 0.0)
    again = restore_state(dump_state(c), "test")
    assert isinstance(again, Controller)
    assert said(again.handle(ReplicaUp("a", ("llama",)), 5.0)) == [Dispatch(1, "a")]


def test_in_the_mode_off_requests_wait_for_their_model_too() -> None:
    c = asleep(governor=GovernorConfig(mode="off"))
    assert said(c.handle(Arrived(request(1)), 0.0)) == [Hold(1), Load("llama")]
    assert said(c.handle(ReplicaUp("a", ("llama",)), 5.0)) == [Dispatch(1, "a")]


# --- adapters that a replica turns out not to have ----------------------------------------------


def with_adapter(*replicas: str) -> Controller:
    """A controller before replicas that have loaded the adapter `tuned`."""
    c = controller(*replicas)
    for name in replicas:
        c.handle(Loadable(name, ("tuned",)), 0.0)
        c.handle(ReplicaUp(name, ("llama", "tuned")), 0.0)
    return c


def test_a_request_whose_adapter_is_gone_is_held_until_it_is_loaded_again() -> None:
    c = with_adapter("a")
    assert arrive(c, 1, model="tuned") == "a"
    lost = said(c.handle(Failed(1, "a", "unloaded", True), 1.0))
    assert lost == [Hold(1), Load("tuned")]
    assert said(c.handle(Arrived(request(2, "tuned")), 1.0)) == [Hold(2)], "nobody is sent there"
    assert arrive(c, 3, 1.0) == "a", "its breaker is not told"
    up = said(c.handle(ReplicaUp("a", ("llama", "tuned")), 2.0))
    assert up == [Dispatch(1, "a"), Dispatch(2, "a")]
    c.handle(Finished(1, 10, 0, 10), 3.0)
    assert c.ignored == 0


def test_another_replica_that_has_it_is_taken_at_once() -> None:
    c = with_adapter("a", "b")
    first = arrive(c, 1, model="tuned")
    (sent,) = said(c.handle(Failed(1, first, "unloaded", True), 1.0))
    assert isinstance(sent, Dispatch)
    assert sent.replica != first


def test_one_that_is_lost_again_and_again_is_refused() -> None:
    c = with_adapter("a")
    arrive(c, 1, model="tuned")
    refusal: list[Action] = []
    for attempt in range(10):
        refusal = said(c.handle(Failed(1, "a", "unloaded", True), float(attempt)))
        if refusal[0] != Hold(1):
            break
        c.handle(ReplicaUp("a", ("llama", "tuned")), float(attempt))
    assert refusal == [Reject(1, "busy", 1.0)]


def test_a_client_that_leaves_while_its_adapter_is_loaded_again_is_forgotten() -> None:
    c = with_adapter("a")
    arrive(c, 1, model="tuned")
    c.handle(Failed(1, "a", "unloaded", True), 1.0)
    c.handle(Cancelled(1), 2.0)
    assert said(c.handle(ReplicaUp("a", ("llama", "tuned")), 3.0)) == []
    assert c.loads.waiting() == {}


def test_what_was_sent_and_waits_again_for_a_slot_takes_nobody_along() -> None:
    c = controller(
        governor=GovernorConfig(policy="static", static=StaticConfig(limit=1)),
        merging=MergingConfig(batch_load_min=100),
    )
    c.handle(Loadable("a", ("tuned",)), 0.0)
    up = ReplicaUp("a", ("llama", "tuned"))
    c.handle(up, 0.0)
    embedding: dict[str, Any] = {"endpoint": "embeddings", "stream": False, "batch_key": "e"}
    c.handle(Woke(), 0.0)
    assert arrive(c, 1, model="tuned", **embedding) == "a"
    c.handle(Failed(1, "a", "unloaded", True), 0.1)
    assert arrive(c, 2, 0.2) == "a"
    assert said(c.handle(up, 0.3)) == [Hold(1)], "the other one has the slot"
    later = said(c.handle(Arrived(request(3, "tuned", **embedding)), 0.4))
    assert later == [Hold(3)], "its call has been made"
