"""How well requests are routed: the controller on toy queues, beside routers it must beat."""

from __future__ import annotations

import pytest

from tests.support.toy_engines import (
    LeastOutstanding,
    Mileage,
    Outcome,
    RandomChoice,
    RoundRobin,
    ToyEngine,
    simulate,
    uniform,
    zipf,
)


def queues(*rates: float) -> list[ToyEngine]:
    """Servers of one request at a time."""
    return [ToyEngine(1, rate, rate) for rate in rates]


def batching(*sizes: float) -> list[ToyEngine]:
    """Engines that serve 16 requests side by side at full speed, and up to 64 at less."""
    return [ToyEngine(64, 50 * size, 800 * size) for size in sizes]


def shares(outcome: Outcome, engines: int) -> list[float]:
    return [outcome.share(engine, engines) for engine in range(engines)]


@pytest.mark.parametrize("load", [0.6, 0.8, 0.95])
def test_waits_are_far_below_random_and_round_robin_and_near_the_best_of_all(load: float) -> None:
    random = simulate(RandomChoice(4), queues(*[1000] * 4), load)
    turns = simulate(RoundRobin(4), queues(*[1000] * 4), load)
    # Looks at all engines and knows their every request: no gateway among several can.
    best = simulate(LeastOutstanding(4), queues(*[1000] * 4), load)
    ours = simulate(Mileage(4), queues(*[1000] * 4), load)
    assert ours.wait_mean_s < 0.45 * random.wait_mean_s
    assert ours.wait_p99_s < 0.5 * random.wait_p99_s
    assert ours.wait_mean_s < 0.9 * turns.wait_mean_s
    assert ours.wait_p99_s < 0.9 * turns.wait_p99_s
    assert ours.wait_p99_s < 1.35 * best.wait_p99_s


@pytest.mark.parametrize("load", [0.8, 0.95])
def test_a_replica_twice_as_fast_gets_twice_the_work(load: float) -> None:
    sizes = (2000, 2000, 1000, 1000)
    ours = simulate(Mileage(4), queues(*sizes), load)
    parts = shares(ours, 4)
    assert 1.7 < (parts[0] + parts[1]) / (parts[2] + parts[3]) < 2.3
    assert simulate(RoundRobin(4), queues(*sizes), load).wait_mean_s > 10 * ours.wait_mean_s
    # Counting requests, whatever their size and the engine's speed, waits longer at the tail.
    best = simulate(LeastOutstanding(4), queues(*sizes), load)
    assert ours.wait_p99_s < 1.1 * best.wait_p99_s


def test_batching_engines_of_two_sizes_are_loaded_alike() -> None:
    sizes = (1.0, 1.0, 0.5, 0.5)
    ours = simulate(Mileage(4), batching(*sizes), 0.9)
    parts = shares(ours, 4)
    assert 1.7 < (parts[0] + parts[1]) / (parts[2] + parts[3]) < 3.0
    counted = simulate(LeastOutstanding(4), batching(*sizes), 0.9)
    assert ours.latency_mean_s < 1.15 * counted.latency_mean_s


@pytest.mark.parametrize("load", [0.1, 0.3, 0.6, 0.9])
def test_estimate_and_routing_do_not_confirm_each_other(load: float) -> None:
    # Of equal engines none gets more because it has shown more.
    ours = simulate(Mileage(4, affinity=False), batching(1, 1, 1, 1), load)
    assert max(abs(part - 1) for part in shares(ours, 4)) < 0.06


@pytest.mark.parametrize("load", [0.05, 0.2])
def test_without_load_a_prefix_stays_on_one_replica(load: float) -> None:
    ours = simulate(Mileage(4), batching(1, 1, 1, 1), load, keys=uniform(200))
    assert ours.together_ratio > 0.95
    assert (
        simulate(LeastOutstanding(4), batching(1, 1, 1, 1), load, keys=uniform(200)).together_ratio
        < 0.5
    )


@pytest.mark.parametrize("load", [0.4, 0.6])
def test_affinity_costs_no_latency_while_there_is_room(load: float) -> None:
    ours = simulate(Mileage(4), batching(1, 1, 1, 1), load, keys=uniform(200))
    best = simulate(LeastOutstanding(4), batching(1, 1, 1, 1), load, keys=uniform(200))
    assert ours.together_ratio > 0.85
    assert ours.latency_mean_s < 1.05 * best.latency_mean_s


@pytest.mark.parametrize("kind", ["queues", "batching"])
@pytest.mark.parametrize("engines", [4, 8])
def test_a_hot_prefix_yields_before_its_replica_is_overloaded(kind: str, engines: int) -> None:
    fleet = queues(*[1000] * engines) if kind == "queues" else batching(*[1] * engines)
    ours = simulate(Mileage(engines), fleet, 0.85, keys=zipf(500), requests=8000)
    assert max(shares(ours, engines)) < 1.3
    assert ours.together_ratio > 0.6


def test_a_replica_that_becomes_slow_gets_less_at_once() -> None:
    engines = batching(1, 1, 1, 1)
    ours = simulate(
        Mileage(4, affinity=False),
        engines,
        0.5,
        change=(1200, lambda now_s: engines[0].slow_down(now_s, 4.0)),
    )
    engines = batching(1, 1, 1, 1)
    turns = simulate(
        RoundRobin(4),
        engines,
        0.5,
        change=(1200, lambda now_s: engines[0].slow_down(now_s, 4.0)),
    )
    assert ours.share(0, 4) < 0.5
    assert ours.latency_mean_s < 0.2 * turns.latency_mean_s
