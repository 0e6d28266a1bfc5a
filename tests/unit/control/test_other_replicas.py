"""Other replicas by ConfigChanged: new ones, ones that are left, and what runs meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Dispatch, Reject
from mileage.core.events import (
    Arrived,
    ConfigChanged,
    Failed,
    Finished,
    ReplicaDown,
    ReplicaUp,
    Woke,
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


def change(c: Controller, names: str, now_s: float = 1.0, **fields: Any) -> Any:
    config = ControlConfig(replicas=tuple(names), **fields)
    settings = msgspec.json.encode(config).decode()
    return c.handle(ConfigChanged(c.version + 1, settings), now_s)


def test_a_new_replica_is_used_when_it_is_up() -> None:
    c = controller("a", known=("a",))
    change(c, "ab")
    assert states(c) == {"a": "up", "b": "down"}
    assert {arrive(c, i, 1.0) for i in range(1, 9)} == {"a"}
    c.handle(ReplicaUp("b", ("llama",)), 2.0)
    assert {arrive(c, i, 2.0) for i in range(11, 31)} == {"a", "b"}


def test_one_that_is_left_takes_nothing_and_finishes_what_it_runs() -> None:
    c = controller("a", "b", known=("a", "b"))
    ran = {i: arrive(c, i) for i in range(1, 21)}
    assert set(ran.values()) == {"a", "b"}
    change(c, "a")
    assert states(c) == {"a": "up"}
    assert {arrive(c, i, 1.0) for i in range(101, 121)} == {"a"}
    for i, replica in ran.items():
        if replica == "b":
            assert c.handle(Finished(i, prompt_tokens=1, output_tokens=1), 2.0) == ()
    assert c.handle(ReplicaUp("b", ("llama",)), 2.0) == ()
    assert c.ignored == 1
    assert {arrive(c, i, 2.0) for i in range(201, 221)} == {"a"}


def test_a_failure_on_one_that_is_left_goes_on_elsewhere() -> None:
    c = controller("a", "b", known=("a", "b"))
    ran = {i: arrive(c, i) for i in range(1, 21)}
    change(c, "a")
    first = next(i for i, replica in ran.items() if replica == "b")
    (action,) = fail(c, first, "b", now_s=2.0)
    assert isinstance(action, Dispatch)
    assert (action.request_id, action.replica) == (first, "a")


def test_the_last_one_with_a_model_takes_it_along() -> None:
    c = controller("a", known=("a",))
    c.handle(ReplicaUp("a", ("llama", "only")), 0.0)
    change(c, "b")
    (action,) = c.handle(Arrived(request(1)), 1.0)
    assert isinstance(action, Reject)
    assert action.reason == "model_not_found"
    c.handle(ReplicaUp("b", ("llama",)), 2.0)
    assert arrive(c, 2, 2.0) == "b"


def test_one_that_comes_back_is_another() -> None:
    c = controller("a", "b", known=("a", "b"))
    for i in range(1, 21):
        arrive(c, i)
    assert in_flight(c)["b"] > 0
    change(c, "a")
    change(c, "ab")
    assert states(c) == {"a": "up", "b": "down"}
    assert "b" not in in_flight(c)
    c.handle(ReplicaUp("b", ("llama",)), 2.0)
    # What the first one of the name ran is not counted on the second.
    for i in range(1, 21):
        c.handle(Finished(i, prompt_tokens=1, output_tokens=1), 3.0)
    assert in_flight(c) == {}
    (failed,) = c.handle(Failed(99, "b", "connect", True), 3.0)
    assert isinstance(failed, Reject)


def test_their_order_is_that_of_the_configuration() -> None:
    c = controller("a", "b", "c")
    change(c, "cxa")
    assert list(states(c)) == ["c", "x", "a"]


def test_without_names_those_that_there_are_stay() -> None:
    c = controller("a", "b", known=("a", "b"))
    c.handle(ConfigChanged(2, msgspec.json.encode(ControlConfig()).decode()), 1.0)
    assert states(c) == {"a": "up", "b": "up"}


def test_what_a_replica_lacks_may_change() -> None:
    c = controller("a", "b", known=("a", "b"))
    change(c, "ab", lacks={"a": ("embeddings",)})
    assert {arrive(c, i, 1.0, endpoint="embeddings") for i in range(1, 21)} == {"b"}
    change(c, "ab")
    assert {arrive(c, i, 1.0, endpoint="embeddings") for i in range(21, 61)} == {"a", "b"}


def test_an_open_breaker_that_is_left_wakes_nobody() -> None:
    c = controller("a", "b", known=("a", "b"))
    open_breaker(c, "b", 0.0)
    assert states(c)["b"] == "open"
    change(c, "a", 0.5)
    for now_s in (1.0, 2.0, 5.0):
        assert c.handle(Woke(), now_s) == ()
    c.handle(ReplicaDown("b", "gone"), 6.0)
    assert states(c) == {"a": "up"}


def test_what_ends_at_one_that_is_left_may_be_the_last_of_its_model() -> None:
    # Its breaker opens by what it still runs, and there is no route any more to sort it on.
    c = controller("a", known=("a",), failures_max=1)
    for i in range(1, 4):
        arrive(c, i)
    change(c, "b")
    (action,) = fail(c, 1, "a", now_s=1.0)
    assert isinstance(action, Reject)
    assert fail(c, 2, "a", retryable=False, now_s=1.0) == ()
    assert c.handle(Finished(3, prompt_tokens=1, output_tokens=1), 1.0) == ()
    assert c.failure is None
    assert states(c) == {"b": "down"}
