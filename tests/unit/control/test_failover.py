"""Failover: where a failed request is tried next, and when it is given up."""

from __future__ import annotations

import pytest

from mileage.core.actions import Dispatch, Reject, WakeAt
from mileage.core.events import (
    Arrived,
    FailureKind,
    FirstToken,
    ReplicaUp,
)
from tests.support.controllers import (
    arrive,
    controller,
    fail,
    in_flight,
    open_breaker,
    request,
    states,
)


def test_a_failed_request_goes_to_replicas_that_it_has_not_tried() -> None:
    c = controller("a", "b", "c")
    tried = [arrive(c, 1)]
    for _ in range(2):
        (action,) = fail(c, 1, tried[-1], "status")
        assert isinstance(action, Dispatch)
        tried.append(action.replica)
    assert sorted(tried) == ["a", "b", "c"]
    assert in_flight(c) == {tried[-1]: 1}
    assert fail(c, 1, tried[-1], "status") == (Reject(1, "upstream_failed"),)
    assert (c.in_flight, in_flight(c)) == (0, {})


def test_attempts_are_bounded_though_replicas_are_left() -> None:
    c = controller("a", "b", "c", attempts_max=2)
    first = arrive(c, 1)
    (action,) = fail(c, 1, first)
    assert isinstance(action, Dispatch)
    assert fail(c, 1, action.replica) == (Reject(1, "upstream_failed"),)


def test_with_one_attempt_nothing_fails_over() -> None:
    c = controller("a", "b", attempts_max=1)
    first = arrive(c, 1)
    assert fail(c, 1, first) == (Reject(1, "upstream_failed"),)


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        pytest.param("connect", True, id="no connection: a moment later there may be one"),
        pytest.param("broken", True, id="a broken connection: it may have been stale"),
        pytest.param("timeout", False, id="no answer in time: it would take as long again"),
        pytest.param("status", False, id="the engine's own error: it would be the same again"),
    ],
)
def test_where_there_is_only_one_replica_lost_connections_are_tried_again(
    kind: FailureKind, again: bool
) -> None:
    c = controller("a", failures_max=9)
    arrive(c, 1)
    expected = (Dispatch(1, "a"),) if again else (Reject(1, "upstream_failed"),)
    assert fail(c, 1, "a", kind) == expected
    if again:
        if kind == "connect":
            assert fail(c, 1, "a", kind) == (Dispatch(1, "a"),)
        assert fail(c, 1, "a", kind) == (Reject(1, "upstream_failed"),)
    assert c.in_flight == 0


def test_a_replica_is_not_tried_again_while_another_was_there_to_try() -> None:
    c = controller("a", "b", attempts_max=5, failures_max=9)
    first = arrive(c, 1)
    fail(c, 1, first)
    (second,) = {"a", "b"} - {first}
    assert fail(c, 1, second) == (Reject(1, "upstream_failed"),)


def test_a_replica_that_has_just_opened_its_breaker_is_not_tried_again() -> None:
    c = controller("a", attempts_max=5)
    arrive(c, 1)
    assert fail(c, 1, "a", now_s=5.0) == (Dispatch(1, "a"),)
    assert fail(c, 1, "a", now_s=5.0) == (Reject(1, "upstream_failed", 1.0), WakeAt(6.0))
    assert c.handle(Arrived(request(2)), 5.25) == (Reject(2, "no_replica", 0.75),)


def test_failover_leaves_out_who_no_longer_serves_the_model() -> None:
    c = controller("a", "b")
    first = arrive(c, 1)
    (second,) = {"a", "b"} - {first}
    c.handle(ReplicaUp(second, ("qwen",)), 0.0)
    assert fail(c, 1, first, "status") == (Reject(1, "upstream_failed"),)


def test_failover_leaves_out_who_lacks_the_endpoint() -> None:
    c = controller("a", "b", lacks={"b": ("messages",)}, failures_max=9)
    assert arrive(c, 1, endpoint="messages") == "a"
    assert fail(c, 1, "a", "status") == (Reject(1, "upstream_failed"),)
    # The only one that has it: a lost connection is tried again on it.
    assert arrive(c, 2, endpoint="messages") == "a"
    assert fail(c, 2, "a", "broken") == (Dispatch(2, "a"),)


def test_failover_survives_that_nobody_serves_the_model_any_more() -> None:
    c = controller("a")
    arrive(c, 1)
    c.handle(ReplicaUp("a", ("qwen",)), 0.0)
    assert fail(c, 1, "a") == (Reject(1, "upstream_failed"),)


def test_failover_finds_a_replica_that_came_with_the_model_since() -> None:
    c = controller("a")
    arrive(c, 1)
    c.handle(ReplicaUp("a", ()), 0.0)
    c.handle(ReplicaUp("b", ("llama",)), 0.0)
    assert fail(c, 1, "a", "status") == (Dispatch(1, "b"),)


def test_a_failure_that_the_client_has_seen_needs_no_action_but_counts() -> None:
    c = controller("a", failures_max=1)
    arrive(c, 1)
    c.handle(FirstToken(1), 1.0)
    assert fail(c, 1, "a", "broken", retryable=False, now_s=2.0) == (WakeAt(3.0),)
    assert (c.in_flight, states(c)["a"]) == (0, "open")


def test_our_own_limit_of_connections_opens_no_breaker() -> None:
    c = controller("a", failures_max=1)
    for request_id in range(20):
        arrive(c, request_id)
        assert fail(c, request_id, "a", "busy") == (Reject(request_id, "busy", 1.0),)
    assert (states(c)["a"], c.in_flight, in_flight(c)) == ("up", 0, {})


def test_a_request_that_finds_no_free_connection_goes_to_each_other_replica_once() -> None:
    c = controller("a", "b", "c")
    tried = [arrive(c, 1)]
    for _ in range(2):
        (action,) = fail(c, 1, tried[-1], "busy")
        assert isinstance(action, Dispatch)
        tried.append(action.replica)
    assert sorted(tried) == ["a", "b", "c"]
    assert fail(c, 1, tried[-1], "busy") == (Reject(1, "busy", 1.0),)


def test_a_failed_request_whose_last_resort_is_busy_may_come_again() -> None:
    c = controller("a", "b")
    first = arrive(c, 1)
    (action,) = fail(c, 1, first, "status")
    assert isinstance(action, Dispatch)
    assert fail(c, 1, action.replica, "busy") == (Reject(1, "busy", 1.0),)


def test_a_probe_that_finds_no_free_connection_makes_room_for_the_next() -> None:
    c = controller("a")
    open_breaker(c, "a", 0.0)
    assert arrive(c, 1, 1.0) == "a"
    assert fail(c, 1, "a", "busy", now_s=1.0) == (Reject(1, "busy", 1.0),)
    assert states(c)["a"] == "half_open"
    assert arrive(c, 2, 1.0) == "a"
    c.handle(FirstToken(2), 1.1)
    assert states(c)["a"] == "up"


@pytest.mark.parametrize("kind", ["broken", "timeout"])
def test_a_request_that_breaks_two_replicas_gets_no_third(kind: FailureKind) -> None:
    c = controller("a", "b", "c", attempts_max=5, failures_max=9)
    first = arrive(c, 1)
    (action,) = fail(c, 1, first, kind)
    assert isinstance(action, Dispatch)
    assert fail(c, 1, action.replica, kind) == (Reject(1, "upstream_failed"),)
