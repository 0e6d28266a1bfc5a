"""Eviction policies in an engine: what they keep, against the pool without one and by hand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.policy.eviction.choose import EVICTION_POLICIES, EvictionConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.kv_pool import KvPool
from mileage.sim.ranked_pool import RankedPool
from mileage.sim.sequence import GONE, Sequence
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((0.01, 1e-4, 2e-6, 5e-5, 1e-8))
_LRU = EvictionConfig(policy="lru")


def _serve(pool: KvPool, keys: tuple[int, ...], now_s: float, answer_tokens: int = 0) -> int:
    """A request comes, is served alone, and ends; the units that were found."""
    sequence = Sequence(0, len(keys) * 4 + 1, 1, keys, 4)
    pool.now_s = now_s
    found = pool.found(sequence)
    assert pool.admits(sequence, found, sequence.target + answer_tokens, 0)
    pool.start(sequence, found)
    pool.grow(sequence, sequence.target)
    sequence.computed = sequence.target
    pool.grow(sequence, sequence.target + answer_tokens)
    sequence.computed += answer_tokens
    pool.release(sequence, sequence.computed)
    pool.check()
    return found


def _conversations(random: Random, count: int) -> list[tuple[int, ...]]:
    stems = [tuple(range(s * 100, s * 100 + 20)) for s in range(8)]
    return [random.choice(stems)[: random.randint(1, 20)] for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), blocks=st.integers(25, 80))
def test_lru_as_a_policy_hits_as_the_pool_does_by_itself(seed: int, blocks: int) -> None:
    """One request at a time: both then know the same order."""
    plain, ranked = KvPool(blocks, 4, caching=True), RankedPool(blocks, 4, _LRU)
    for number, keys in enumerate(_conversations(Random(seed), 60)):
        assert _serve(ranked, keys, float(number)) == _serve(plain, keys, float(number))
    assert (ranked.free, ranked.evicted) == (plain.free, plain.evicted)
    assert ranked.hit_tokens == plain.hit_tokens > 0


def test_heat_keeps_what_came_back_although_others_are_newer() -> None:
    plain = KvPool(12, 4, caching=True)
    ranked = RankedPool(12, 4, EvictionConfig(policy="lru_k_heat"))
    hits = {plain: 0, ranked: 0}
    for pool in hits:
        _serve(pool, (1, 2, 3), -1.0)
        for turn in range(6):
            hits[pool] += _serve(pool, (1, 2, 3), turn * 10.0)
            for other in range(3):
                once = tuple(range(1000 + turn * 30 + other * 10, 1004 + turn * 30 + other * 10))
                hits[pool] += _serve(pool, once, turn * 10.0 + 1 + other)
    assert hits[plain] == 3
    assert hits[ranked] == 6 * 3


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_what_follows_a_block_goes_before_it(policy: str) -> None:
    pool = RankedPool(8, 4, EvictionConfig(policy=policy))
    _serve(pool, (1, 2, 3, 4), 0.0)
    pool.take(5)  # four are blank
    assert pool.found(Sequence(0, 17, 1, (1, 2, 3, 4), 4)) == 3
    pool.take(2)
    assert pool.found(Sequence(0, 17, 1, (1, 2, 3, 4), 4)) == 1
    pool.check()


def test_an_answer_goes_before_its_prompt_block_by_block() -> None:
    pool = RankedPool(8, 4, _LRU)
    _serve(pool, (1, 2), 0.0, answer_tokens=11)
    assert (pool.blank, pool.free) == (3, 8)
    pool.take(4)
    pool.take(2)
    assert pool.evicted == 0
    assert pool.found(Sequence(0, 9, 1, (1, 2), 4)) == 2
    pool.take(1)
    assert pool.found(Sequence(0, 9, 1, (1, 2), 4)) == 1


def test_a_cleared_pool_knows_nothing() -> None:
    for pool in (KvPool(8, 4, caching=True), RankedPool(8, 4, _LRU)):
        _serve(pool, (1, 2), 0.0, answer_tokens=9)
        pool.clear()
        assert (pool.blank, pool.free) == (8, 8)
        assert _serve(pool, (1, 2), 1.0) == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(sorted(EVICTION_POLICIES)))
def test_requests_that_overlap_lose_no_block_under_any_policy(seed: int, policy: str) -> None:
    random, now_s, arrivals = Random(seed), 0.0, []
    for index, keys in enumerate(_conversations(random, 40)):
        now_s += random.expovariate(random.choice((5.0, 50.0)))
        prompt = len(keys) * 4 + random.randint(0, 9)
        arrivals.append((now_s, Sequence(index, prompt, random.randint(0, 60), keys, 4)))
    config = EngineConfig(
        kv_blocks=random.choice((40, 60, 200)),
        running_max=random.choice((2, 8)),
        step_tokens_max=32,
        block_tokens=4,
        eviction=EvictionConfig(policy=policy),
    )
    engine = run_engine(config, _TABLE, arrivals, check=True)
    assert engine.pool.free == config.kv_blocks
    assert all(each.state == GONE and each.produced == each.output_tokens for _, each in arrivals)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"prefix_cache": False}, id="no prefix cache"),
        pytest.param({"kv_layout": "contiguous", "context_tokens_max": 64}, id="contiguous"),
    ],
)
def test_a_policy_without_blocks_to_evict_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"engine\.eviction"):
        EngineConfig(kv_blocks=100, eviction=_LRU, **keys)  # type: ignore[arg-type]
