"""Routing by prefixes: caches decide while there is room, and the balance is kept."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mileage.core.errors import ConfigError
from mileage.core.replica import ReplicaView
from mileage.policy.load import ReplicaLoad, work_of
from mileage.policy.prefix_choice import work_after_hit
from mileage.policy.routing import Candidates, Router, RoutingConfig, name_hash
from mileage.policy.service_rate import FleetRates

BLOCK_TOKENS = 256
PROMPT = tuple(range(1, 9))
PREFIX = RoutingConfig(policy="prefix")


def fleet(count: int) -> list[ReplicaLoad]:
    rates = FleetRates()
    return [ReplicaLoad(name_hash(f"replica-{i}"), rates, 10.0) for i in range(count)]


def choose(loads: list[ReplicaLoad], work: float = 600.0, now_s: float = 0.0) -> int:
    router = Router(PREFIX, Random(0))
    chosen = router.choose(Candidates(loads), work, 1, now_s, PROMPT, BLOCK_TOKENS)
    return loads.index(chosen)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param("routing.balance_max_ratio", {"balance_max_ratio": 1.0}, id="no slack at all"),
        pytest.param("routing.prefix_blocks_max", {"prefix_blocks_max": 0}, id="no memory"),
        pytest.param("routing.prefix_block_bytes", {"prefix_block_bytes": 1}, id="tiny blocks"),
    ],
)
def test_config_refuses(key: str, values: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        RoutingConfig(**values)  # type: ignore[arg-type]
    assert caught.value.key == key


@pytest.mark.parametrize("place", range(6))
def test_the_replica_that_has_the_prompt_gets_it(place: int) -> None:
    loads = fleet(6)
    loads[place].cached.sent(PROMPT)
    loads[(place + 1) % 6].cached.sent(PROMPT[:3])
    assert choose(loads) == place


def test_of_what_nobody_has_the_better_of_two_gets_it() -> None:
    loads = fleet(2)
    loads[0].started(5000.0, 0.0)
    assert choose(loads) == 1


def test_a_long_queue_outweighs_what_is_cached() -> None:
    loads = fleet(2)
    loads[0].cached.sent(PROMPT)
    assert choose(loads) == 0
    loads[0].started(50_000.0, 0.0)
    assert choose(loads) == 1


def test_a_cache_that_is_about_to_be_evicted_is_worth_less() -> None:
    loads = fleet(2)
    loads[0].cached.sent(PROMPT[:2])
    assert choose(loads) == 0
    loads[0].observed(ReplicaView(replica="", observed_s=0.0, kv_cache_usage_ratio=1.0), 0.0)
    assert choose(loads) == 1


def test_a_replica_in_use_gets_no_more_than_its_share() -> None:
    loads = fleet(2)
    loads[0].cached.sent(PROMPT)
    loads[0].cached.worked(1500.0, 0.0)
    loads[1].cached.worked(100.0, 0.0)
    assert choose(loads) == 0, "less than a tenth of its capacity is used: it is not too hot"
    loads[0].cached.worked(60_000.0, 0.0)
    loads[1].cached.worked(30_000.0, 0.0)
    assert choose(loads) == 1
    loads[1].cached.worked(30_000.0, 0.0)
    assert choose(loads) == 0


def test_work_of_a_cached_prompt_is_a_step_at_least() -> None:
    assert work_after_hit(work_of(1000, 10), 400) == work_of(600, 10)
    assert work_after_hit(work_of(1000, 0), 5000) == 1.0


def test_in_turn() -> None:
    loads = fleet(3)
    router = Router(RoutingConfig(policy="round_robin"), Random(0))
    found = [loads.index(router.choose(Candidates(loads), 1.0, 5, 0.0)) for _ in range(6)]
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[:3] == found[3:]


def test_without_blocks_it_routes_by_affinity() -> None:
    loads = fleet(4)
    router = Router(PREFIX, Random(0))
    candidates = Candidates(loads)
    for key in range(20):
        assert router.choose(candidates, 1.0, key, 0.0) is candidates.preferred(key)


@given(st.integers(2, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), max_size=200))
def test_whatever_is_cached_work_stays_in_balance(
    count: int, requests: list[tuple[int, int]]
) -> None:
    loads, router = fleet(count), Router(PREFIX, Random(1))
    candidates, sent = Candidates(loads), [0.0] * count
    for conversation, blocks in requests * 3:
        prompt = tuple(range(100 * conversation, 100 * conversation + blocks))
        load = router.choose(candidates, 5000.0, 1, 0.0, prompt, BLOCK_TOKENS)
        work = work_after_hit(5000.0, load.cached.match(prompt) * BLOCK_TOKENS)
        load.cached.sent(prompt)
        load.cached.worked(work, 0.0)
        sent[loads.index(load)] += work
        # No time passes: the mean may be passed by one request, or while nobody is in use.
        free = 0.1 * load.work_per_s * 60.0 / 0.69
        assert max(sent) <= max(1.25 * sum(sent) / count, free) + 5000.0
