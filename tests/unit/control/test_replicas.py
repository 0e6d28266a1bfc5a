"""Replicas and routes: who serves which model, and what people are told of it."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.replica import Replica
from mileage.control.replicas import Replicas, ReplicaState, Route
from mileage.policy.breaker import BreakerConfig

BREAKER = BreakerConfig(failures_max=1, open_s=2.0, open_max_s=8.0)


def fleet(*names: str) -> Replicas:
    config = ControlConfig(breaker=BREAKER)
    return Replicas(names, config, {"c": ("responses", "messages")})


def named(replicas: Replicas, name: str) -> Replica:
    replica = replicas.get(name)
    assert replica is not None
    return replica


def closed(replicas: Replicas, model: str) -> list[str]:
    return [replica.name for replica in replicas.routes[model].closed.loads]


def fail(replicas: Replicas, name: str, now_s: float) -> None:
    replica = named(replicas, name)
    replica.breaker.failed(replica.breaker.ticket, now_s)
    replicas.refresh(replica)


def test_names_are_taken_once_and_in_order() -> None:
    replicas = fleet("b", "a", "b")
    assert [replica.name for replica in replicas] == ["b", "a"]
    assert [replica.bit for replica in replicas] == [1, 2]
    assert replicas.get("c") is None


def test_a_route_lists_those_that_are_up_and_serve_the_model() -> None:
    replicas = fleet("a", "b", "c")
    replicas.up(named(replicas, "a"), ["llama", "qwen"])
    replicas.up(named(replicas, "b"), ["llama", "llama"])
    assert closed(replicas, "llama") == ["a", "b"]
    assert closed(replicas, "qwen") == ["a"]
    assert named(replicas, "b").models == ("llama",)
    replicas.down(named(replicas, "a"), "health check")
    assert closed(replicas, "llama") == ["b"]
    assert closed(replicas, "qwen") == []
    assert [replica.name for replica in replicas.routes["qwen"].serving] == ["a"]


def test_a_model_is_known_as_long_as_any_replica_has_it() -> None:
    replicas = fleet("a", "b")
    assert not replicas.seen_up
    replicas.up(named(replicas, "a"), ["llama"])
    replicas.up(named(replicas, "b"), ["llama"])
    replicas.up(named(replicas, "a"), ["qwen"])
    assert closed(replicas, "llama") == ["b"]
    kept = replicas.routes["llama"]
    replicas.up(named(replicas, "b"), [])
    assert list(replicas.routes) == ["qwen"]
    # A request that still holds the route must not fail over to who no longer serves it.
    assert (kept.serving, kept.closed.loads) == ((), ())


def test_a_change_elsewhere_keeps_what_is_known_of_prefixes() -> None:
    replicas = fleet("a", "b", "c")
    for name in "abc":
        replicas.up(named(replicas, name), ["llama"] if name != "c" else ["llama", "qwen"])
    before = replicas.routes["llama"].closed
    replicas.up(named(replicas, "c"), ["llama", "phi"])
    assert replicas.routes["llama"].closed is before


def test_endpoints_that_a_replica_lacks_are_left_to_the_others() -> None:
    replicas = fleet("a", "c")
    replicas.up(named(replicas, "c"), ["llama"])
    route = replicas.routes["llama"]
    assert list(route.partial) == ["messages", "responses"]
    assert route.partial["messages"].serving == ()
    replicas.up(named(replicas, "a"), ["llama"])
    assert closed(replicas, "llama") == ["a", "c"]
    takers = route.partial["messages"]
    assert [replica.name for replica in takers.closed.loads] == ["a"]
    before = takers.closed
    replicas.up(named(replicas, "c"), ["llama", "phi"])
    assert route.partial["messages"].closed is before
    fail(replicas, "a", 0.0)
    assert (len(takers.serving), takers.closed.loads) == (1, ())
    assert takers.retry_after_s(0.5) == 1.5
    assert route.retry_after_s(0.5) is None
    replicas.up(named(replicas, "c"), [])
    replicas.up(named(replicas, "a"), [])
    assert all(takers.closed.loads == () for takers in route.partial.values())


def test_breakers_sort_replicas_into_closed_and_half_open() -> None:
    replicas = fleet("a", "b")
    for name in "ab":
        replicas.up(named(replicas, name), ["llama"])
    route = replicas.routes["llama"]
    fail(replicas, "a", 1.0)
    assert closed(replicas, "llama") == ["b"]
    assert (route.half_open, replicas.half_open_due_s) == ((), 3.0)
    assert route.retry_after_s(1.5) is None  # b takes a retry now
    fail(replicas, "b", 1.25)
    assert route.retry_after_s(1.5) == 1.5
    replicas.tick(3.0)
    assert [replica.name for replica in route.half_open] == ["a"]
    assert replicas.half_open_due_s == 3.25
    assert route.retry_after_s(3.0) is None  # a takes one
    replicas.probe(named(replicas, "a"))
    assert (route.half_open, route.retry_after_s(3.0)) == ((), 0.25)
    replicas.tick(3.25)
    replicas.probe(named(replicas, "b"))
    assert replicas.half_open_due_s == math.inf
    assert route.retry_after_s(3.25) is None  # nobody knows when the probes will settle


def test_a_retry_is_promised_for_the_first_breaker_and_only_of_those_up() -> None:
    replicas = fleet("a", "b", "c")
    for name in "abc":
        replicas.up(named(replicas, name), ["llama"])
    for name, at_s in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        fail(replicas, name, at_s)
    route = replicas.routes["llama"]
    assert route.retry_after_s(2.5) == 0.5
    replicas.down(named(replicas, "a"), "gone")
    assert (route.retry_after_s(3.5), replicas.half_open_due_s) == (0.5, 4.0)
    assert route.retry_after_s(9.0) == 0.0


def test_up_after_down_starts_afresh() -> None:
    replicas = fleet("a")
    a = named(replicas, "a")
    replicas.up(a, ["llama"])
    fail(replicas, "a", 1.0)
    replicas.up(a, ["llama"])
    assert a.state().state == "open"  # healthy all the time, says its health check: no proof
    replicas.down(a, "health check")
    assert replicas.half_open_due_s == math.inf
    replicas.up(a, ["llama"])
    assert a.state().state == "up"
    assert closed(replicas, "llama") == ["a"]


def test_up_after_down_forgets_how_fast_it_was() -> None:
    replicas = fleet("a")
    a = named(replicas, "a")
    replicas.up(a, ["llama"])
    before = a.done_s(100.0, 0.0)
    for i in range(32):
        a.started(101.0, i)
        a.finished(101.0, 0, 100, i, i + 0.1)
    replicas.up(a, ["llama"])
    assert a.done_s(100.0, 40.0) < before / 5
    replicas.down(a, "restarting")
    replicas.up(a, ["llama"])
    # Only what requests are like is still known: one of 101 tokens, at the speed assumed.
    assert a.done_s(100.0, 40.0) == pytest.approx(before)


def test_replicas_with_the_same_base_model_learn_from_each_other() -> None:
    replicas = fleet("a", "b", "c")
    replicas.up(named(replicas, "a"), ["llama", "adapter-1"])
    replicas.up(named(replicas, "b"), ["llama", "adapter-2"])
    replicas.up(named(replicas, "c"), ["qwen"])
    a, b, c = replicas
    for i in range(32):
        a.started(101.0, i)
        a.finished(101.0, 0, 100, i, i + 0.1)
    assert b.done_s(100.0, 40.0) == pytest.approx(a.done_s(100.0, 40.0))
    assert c.done_s(100.0, 40.0) > 10 * b.done_s(100.0, 40.0)


def test_what_people_are_told() -> None:
    replicas = fleet("a", "b", "c", "d")
    for name in "abc":
        replicas.up(named(replicas, name), ["llama"])
    named(replicas, "a").started(1.0, 0.0)
    for name in "bc":
        named(replicas, name).failure = "connect"
        fail(replicas, name, 0.0)
    replicas.tick(2.0)
    fail(replicas, "c", 2.0)
    reason = "circuit breaker; last failure: connect"
    models = ("llama",)
    told = [replica.state() for replica in replicas]
    assert all(state.limit == GovernorConfig().limit_max for state in told)
    assert [structs.replace(s, limit=None, limit_reason=None) for s in told] == [
        ReplicaState(name="a", state="up", models=models, in_flight=1),
        ReplicaState(name="b", state="half_open", models=models, in_flight=0, reason=reason),
        ReplicaState(name="c", state="open", models=models, in_flight=0, reason=reason),
        ReplicaState(name="d", state="down", models=(), in_flight=0, reason="not up yet"),
    ]


def test_answers_to_expect_are_a_mean_at_first_and_follow_later() -> None:
    route = Route()
    assert route.output_tokens == 128.0
    for output_tokens in (10, 20, 60):
        route.answered(output_tokens)
    assert route.output_tokens == pytest.approx(30.0)
    for _ in range(200):
        route.answered(500)
    assert route.output_tokens == pytest.approx(500.0, rel=0.01)
    route.answered(0)
    assert route.output_tokens == pytest.approx(475.0, rel=0.01)
