"""Routing: rendezvous hashing moves only what it must; the choice equals a brute-force oracle."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import hypothesis.strategies as st
from hypothesis import given

from mileage.core.replica import ReplicaView
from mileage.policy.load import ReplicaLoad
from mileage.policy.routing import Candidates, Router, RoutingConfig, name_hash
from mileage.policy.service_rate import FleetRates

names = st.lists(st.text(max_size=12), min_size=2, max_size=12, unique=True)
keys = st.integers(0, 2**64 - 1)


def loads_of(replicas: list[str]) -> list[ReplicaLoad]:
    rates = FleetRates()
    return [ReplicaLoad(name_hash(name), rates, 10.0) for name in replicas]


@given(names, st.lists(keys, min_size=1, max_size=200), st.data())
def test_when_a_replica_goes_only_its_own_prefixes_move(
    replicas: list[str], prefixes: list[int], data: st.DataObject
) -> None:
    loads = loads_of(replicas)
    gone = data.draw(st.sampled_from(loads))
    everyone, rest = Candidates(loads), Candidates([x for x in loads if x is not gone])
    for key in prefixes:
        before, after = everyone.preferred(key), rest.preferred(key)
        assert after is not gone
        assert before is after or before is gone


@given(names, keys)
def test_preference_does_not_depend_on_the_order_of_replicas(replicas: list[str], key: int) -> None:
    loads = loads_of(replicas)
    assert Candidates(loads).preferred(key) is Candidates(loads[::-1]).preferred(key)


@given(st.integers(2, 16), st.sampled_from(["random", "counting", "32 bit", "low bits zero"]))
def test_prefixes_spread_evenly_whatever_their_keys_look_like(count: int, kind: str) -> None:
    random = Random(count)
    total = 4000
    prefixes = {
        "random": [random.getrandbits(64) for _ in range(total)],
        "counting": list(range(total)),
        "32 bit": [random.getrandbits(32) for _ in range(total)],
        "low bits zero": [random.getrandbits(48) << 16 for _ in range(total)],
    }[kind]
    candidates = Candidates(loads_of([f"http://10.0.0.{i}:8000" for i in range(count)]))
    owned = Counter(id(candidates.preferred(key)) for key in prefixes)
    fair = total / count
    # Binomial spread of the keys and of the 4,096 buckets, at five standard deviations.
    assert len(owned) == count
    assert all(abs(n - fair) < 5 * math.sqrt(fair * (1 + total / 4096)) for n in owned.values())


situations = st.lists(
    st.tuples(
        st.lists(st.floats(1.0, 3000.0), max_size=12),  # work of our requests in flight
        st.integers(0, 30),  # others' requests
        st.booleans(),  # hot
    ),
    min_size=2,
    max_size=8,
)


@given(situations, st.floats(1.0, 3000.0), st.none() | keys, st.integers(0, 1000), st.booleans())
def test_the_choice_equals_brute_force(
    situation: list[tuple[list[float], int, bool]],
    work: float,
    key: int | None,
    seed: int,
    fresh: bool,
) -> None:
    loads = loads_of([f"replica-{i}" for i in range(len(situation))])
    now_s = 5.0 if fresh else 50.0
    for load, (works, others, hot) in zip(loads, situation, strict=True):
        for one in works:
            load.started(one, 0.0)
        load.observed(
            ReplicaView(
                replica="",
                observed_s=1.0,
                running=len(works) + others,
                waiting=0,
                kv_cache_usage_ratio=1.0 if hot else 0.5,
            ),
            1.0,
        )
    chosen = Router(RoutingConfig(), Random(seed)).choose(Candidates(loads), work, key, now_s)

    # The oracle: assumed rates (50 tokens/s, 8 side by side, 200 tokens each) and plain formulas.
    def backlog(place: int) -> float:
        works, others, _ = situation[place]
        return sum(works) + (200.0 * others if fresh else 0.0)

    def is_hot(place: int) -> bool:
        return fresh and situation[place][2]

    def wait_s(place: int) -> float:
        return max(0.0, backlog(place) / 400.0 - 200.0 * (1 / 50.0 - 1 / 400.0))

    random = Random(seed)
    drawn: list[int] = []

    def of_two() -> int:
        one = int(random.random() * len(loads))
        others = [place for place in range(len(loads)) if place != one]
        drawn[:] = [one, others[int(random.random() * len(others))]]
        return min(drawn, key=lambda p: (backlog(p) + work) / 400.0 * (2 if is_hot(p) else 1))

    expected: int
    preferred = None if key is None else loads.index(Candidates(loads).preferred(key))
    if preferred is not None and wait_s(preferred) <= 0.5 and not is_hot(preferred):
        expected = preferred
    else:
        expected = of_two()
        if preferred is not None:
            yields = is_hot(preferred) and not is_hot(expected)
            longer = wait_s(preferred) > wait_s(expected) + 0.5
            if not yields and not longer:
                expected = preferred
    got = loads.index(chosen)
    if got != expected:
        # Sums in another order may tip the scales of what is equal to the last bits.
        values = [(backlog(p) + work) * (2 if is_hot(p) else 1) for p in (got, expected)]
        waits = abs(abs(wait_s(got) - wait_s(expected)) - 0.5)
        assert math.isclose(*values, rel_tol=1e-9) or waits < 1e-9
