"""Controller: where requests go, and what it says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.actions import Dispatch, Reject, WakeAt
from mileage.core.errors import ConfigError
from mileage.core.events import (
    Arrived,
    Cancelled,
    Failed,
    Finished,
    FirstToken,
    Observed,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from mileage.core.replica import ReplicaView
from tests.support.controllers import (
    arrive,
    controller,
    fail,
    in_flight,
    open_breaker,
    request,
    states,
)


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        controller(known=("a",), failures_max=1, in_flight_max=0)
    assert caught.value.key == "in_flight_max"


def test_a_request_goes_to_a_replica_and_comes_back() -> None:
    c = controller("a")
    assert arrive(c, 1) == "a"
    assert (c.in_flight, in_flight(c)) == (1, {"a": 1})
    assert c.handle(FirstToken(1), 0.5) == ()
    assert c.handle(Finished(1, 100, 0, 20), 1.0) == ()
    assert (c.in_flight, in_flight(c), c.ignored) == (0, {}, 0)


def test_before_any_replica_was_up_no_model_is_unknown() -> None:
    c = controller()
    assert c.handle(Arrived(request(1, "nonsense")), 0.0) == (Reject(1, "no_replica"),)
    assert c.in_flight == 0


def test_a_model_that_no_replica_has_is_not_found() -> None:
    c = controller("a")
    assert c.handle(Arrived(request(1, "nonsense")), 0.0) == (Reject(1, "model_not_found"),)
    c.handle(ReplicaDown("a", "health check"), 0.0)
    assert c.handle(Arrived(request(2, "nonsense")), 0.0) == (Reject(2, "model_not_found"),)


def test_a_model_whose_replicas_are_down_has_no_replica() -> None:
    c = controller("a")
    c.handle(ReplicaDown("a", "disabled by operator"), 0.0)
    assert c.handle(Arrived(request(1)), 0.0) == (Reject(1, "no_replica", None),)
    assert c.replica_states()[0].reason == "disabled by operator"
    c.handle(ReplicaUp("a", ("llama",)), 1.0)
    assert arrive(c, 2, 1.0) == "a"


def test_a_request_goes_only_to_replicas_that_have_its_endpoint() -> None:
    c = controller("a", "b", lacks={"a": ("responses",)})
    assert {arrive(c, i, endpoint="responses") for i in range(30)} == {"b"}
    assert {arrive(c, i) for i in range(30, 99)} == {"a", "b"}
    c.handle(ReplicaDown("b", "health check"), 0.0)
    refused = request(99, endpoint="responses")
    assert c.handle(Arrived(refused), 0.0) == (Reject(99, "no_replica"),)
    assert arrive(c, 100) == "a"


def test_an_endpoint_that_no_replica_of_the_model_has_is_not_supported() -> None:
    c = controller("a", lacks={"a": ("responses",), "unknown": ("chat",)})
    refused = request(1, endpoint="responses")
    assert c.handle(Arrived(refused), 0.0) == (Reject(1, "endpoint_not_supported"),)
    assert (c.in_flight, arrive(c, 2)) == (0, "a")
    c.handle(ReplicaUp("b", ("llama",)), 0.0)
    assert arrive(c, 3, endpoint="responses") == "b"


def test_a_probe_waits_for_a_request_that_the_replica_can_serve() -> None:
    c = controller("a", "b", lacks={"a": ("responses",)})
    open_breaker(c, "a", 0.0)
    assert arrive(c, 1, 1.0, endpoint="responses") == "b"
    assert states(c)["a"] == "half_open"
    assert arrive(c, 2, 1.0) == "a"


def test_a_replica_that_is_not_configured_is_ignored() -> None:
    c = controller(known=("a",))
    c.handle(ReplicaUp("x", ("llama",)), 0.0)
    c.handle(ReplicaDown("x", "gone"), 0.0)
    c.handle(Observed(ReplicaView(replica="x", observed_s=0.0)), 0.0)
    assert c.ignored == 3
    assert list(states(c)) == ["a"]


def test_requests_in_flight_go_on_when_their_replica_goes_down() -> None:
    c = controller("a", "b")
    first = arrive(c, 1)
    c.handle(ReplicaDown(first, "draining"), 0.0)
    assert in_flight(c) == {first: 1}
    assert arrive(c, 2) != first
    assert c.handle(Finished(1, 1, None, 1), 1.0) == ()
    assert first not in in_flight(c)


def test_a_client_that_leaves_says_nothing_about_the_replica() -> None:
    c = controller("a", failures_max=1)
    for i in range(20):
        arrive(c, i)
        assert c.handle(Cancelled(i), 0.1) == ()
    assert (c.in_flight, in_flight(c), states(c)["a"]) == (0, {}, "up")


def test_success_starts_the_count_of_failures_again() -> None:
    c = controller("a")
    for i in range(0, 20, 2):
        arrive(c, i)
        arrive(c, i + 1)
        fail(c, i, "a", retryable=False)
        c.handle(Finished(i + 1), 0.0)
    assert states(c)["a"] == "up"


def test_the_life_of_a_breaker() -> None:
    c = controller("a")
    arrive(c, 1)
    fail(c, 1, "a", retryable=False, now_s=10.0)
    arrive(c, 2)
    assert fail(c, 2, "a", retryable=False, now_s=10.0) == (WakeAt(11.0),)
    assert states(c)["a"] == "open"
    assert c.handle(Woke(), 11.0) == ()
    assert states(c)["a"] == "half_open"
    assert arrive(c, 3, 11.0) == "a"
    assert c.handle(Arrived(request(4)), 11.0) == (Reject(4, "no_replica"),)
    assert fail(c, 3, "a", "status", now_s=11.5) == (
        Reject(3, "upstream_failed", 2.0),
        WakeAt(13.5),
    )
    # The host may be late: an arrival finds out as well that the time has come.
    assert arrive(c, 5, 13.5) == "a"
    c.handle(FirstToken(5), 13.6)
    assert states(c)["a"] == "up"
    assert arrive(c, 6, 13.7) == "a"
    c.handle(Finished(5, 1, None, 1), 14.0)
    c.handle(Cancelled(6), 14.0)
    assert (c.in_flight, states(c)["a"]) == (0, "up")


def test_a_cancelled_probe_makes_room_for_the_next() -> None:
    c = controller("a")
    open_breaker(c, "a", 0.0)
    assert arrive(c, 1, 1.0) == "a"
    assert c.handle(Arrived(request(2)), 1.0) == (Reject(2, "no_replica"),)
    c.handle(Cancelled(1), 1.1)
    assert arrive(c, 3, 1.1) == "a"
    c.handle(Finished(3), 1.2)
    assert states(c)["a"] == "up"


def test_the_next_request_is_the_probe_and_it_fails_over() -> None:
    c = controller("a", "b")
    open_breaker(c, "a", 0.0)
    assert arrive(c, 1, 0.5) == "b"
    assert arrive(c, 2, 1.0) == "a"
    assert arrive(c, 3, 1.0) == "b"
    # The wake-up asked for at 1.0 has not come by 1.1: better ask again.
    assert fail(c, 2, "a", now_s=1.1) == (Dispatch(2, "b"), WakeAt(3.1))
    assert states(c)["a"] == "open"


def test_a_half_open_replica_is_the_last_resort_of_failover() -> None:
    c = controller("a", "b")
    first = arrive(c, 1, 0.0)
    (second,) = {"a", "b"} - {first}
    open_breaker(c, second, 0.0)
    assert fail(c, 1, first, "status", now_s=1.0) == (Dispatch(1, second),)
    assert states(c)[second] == "half_open"
    assert fail(c, 1, second, "status", now_s=1.1)[0] == Reject(1, "upstream_failed")


def test_wake_ups_are_asked_for_only_when_needed() -> None:
    c = controller("a", "b", failures_max=1)
    where = {arrive(c, i): i for i in range(20)}
    assert sorted(where) == ["a", "b"]
    assert fail(c, where["a"], "a", retryable=False, now_s=1.0) == (WakeAt(2.0),)
    # Due later than what was asked for: Woke will see to it.
    assert fail(c, where["b"], "b", retryable=False, now_s=1.5) == ()
    assert c.handle(Woke(), 1.9) == (WakeAt(2.0),)  # too early
    assert c.handle(Woke(), 2.0) == (WakeAt(2.5),)
    assert c.handle(Woke(), 2.5) == ()
    assert set(states(c).values()) == {"half_open", "down"}
    assert c.handle(Woke(), 99.0) == ()


def test_a_replica_that_comes_back_needs_no_wake_up() -> None:
    c = controller("a", failures_max=1)
    arrive(c, 1)
    fail(c, 1, "a", retryable=False, now_s=1.0)
    c.handle(ReplicaDown("a", "restarting"), 1.1)
    c.handle(ReplicaUp("a", ("llama",)), 1.2)
    assert states(c)["a"] == "up"
    assert c.handle(Woke(), 2.0) == ()


def test_late_words_about_what_has_ended_change_nothing() -> None:
    c = controller("a")
    arrive(c, 1)
    c.handle(Finished(1), 1.0)
    for event in (FirstToken(1), Finished(1), Cancelled(1), Failed(1, "a", "broken", False)):
        assert c.handle(event, 1.0) == ()
    assert (c.ignored, c.in_flight, in_flight(c)) == (4, 0, {})
    # But somebody waits for an answer to this one.
    assert fail(c, 1, "a") == (Reject(1, "upstream_failed"),)
    assert states(c)["a"] == "up"


def test_a_failure_of_an_attempt_that_was_given_up_is_ignored() -> None:
    c = controller("a", "b")
    first = arrive(c, 1)
    fail(c, 1, first)
    assert fail(c, 1, first) == ()
    assert (c.ignored, c.in_flight) == (1, 1)


def test_an_id_that_is_used_again_replaces_the_old_request() -> None:
    c = controller("a")
    arrive(c, 1)
    arrive(c, 1)
    assert (c.in_flight, in_flight(c), c.forgotten) == (1, {"a": 1}, 1)


def test_past_the_bound_the_oldest_request_is_forgotten() -> None:
    c = controller("a", in_flight_max=3)
    for i in range(5):
        arrive(c, i)
    assert (c.in_flight, in_flight(c), c.forgotten) == (3, {"a": 3}, 2)
    c.handle(Finished(0, 1, None, 1), 1.0)
    c.handle(Finished(4, 1, None, 1), 1.0)
    assert (c.in_flight, c.ignored) == (2, 1)


def test_a_forgotten_probe_makes_room_for_the_next() -> None:
    c = controller("a", in_flight_max=1)
    open_breaker(c, "a", 0.0)
    arrive(c, 1, 1.0)
    c.handle(FirstToken(1), 1.0)
    arrive(c, 2, 1.0)
    assert (c.forgotten, states(c)["a"]) == (1, "up")


@pytest.mark.parametrize(
    ("fields", "output_tokens"),
    [
        pytest.param({}, 128, id="at first what is assumed"),
        pytest.param({"output_tokens_max": 16}, 16, id="never more than it asks for"),
        pytest.param({"output_tokens_max": 4096}, 128, id="a high bound is no forecast"),
        pytest.param({"endpoint": "embeddings"}, 0, id="embeddings have no output"),
    ],
)
def test_work_to_expect(fields: dict[str, Any], output_tokens: int) -> None:
    # 100 prompt tokens count 20, the request itself 1; c gets the comparison's other side.
    for other, goes_to_a in ((21 + output_tokens - 1, False), (21 + output_tokens + 1, True)):
        c = controller("a", known=("a", "b"))
        arrive(c, 1, **fields)
        c.handle(ReplicaUp("b", ("llama", "sized")), 0.0)
        c.handle(ReplicaUp("a", ("llama",)), 0.0)
        (sized,) = c.handle(
            Arrived(
                request(2, "sized", prompt_tokens_estimate=5 * (other - 1), output_tokens_max=0)
            ),
            0.0,
        )
        assert sized == Dispatch(2, "b")
        assert arrive(c, 3) == ("a" if goes_to_a else "b")


def test_answers_without_token_counts_teach_nothing() -> None:
    # A refusal by the engine itself comes at once, and would make it look infinitely fast.
    c = controller("a", "b")
    now_s = 0.0
    for i in range(200):
        now_s += 0.1
        assert arrive(c, i, now_s) in ("a", "b")
        c.handle(Finished(i, None, None, -1 if i % 2 else None), now_s + 0.001)
    fresh = controller("a", "b")
    assert [r.done_s(100.0, now_s) for r in c._replicas] == [
        r.done_s(100.0, 0.0) for r in fresh._replicas
    ]


def test_embeddings_teach_though_they_have_no_output() -> None:
    c = controller("a")
    before = next(iter(c._replicas)).done_s(100.0, 0.0)
    for i in range(32):
        arrive(c, i, i / 10, endpoint="embeddings")
        c.handle(Finished(i, 100, None, None), i / 10 + 0.001)
    assert next(iter(c._replicas)).done_s(100.0, 4.0) < before / 5


def test_views_reach_the_router() -> None:
    c = controller("a", "b")
    c.handle(Observed(ReplicaView(replica="a", observed_s=0.0, running=50, waiting=50)), 0.0)
    assert {arrive(c, i, 1.0) for i in range(20)} == {"b"}
    assert {arrive(c, i, 11.0) for i in range(20, 80)} == {"a", "b"}
