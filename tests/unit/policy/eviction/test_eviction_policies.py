"""LRU-K with heat, and return-aware: what they keep, and what they forget."""

from __future__ import annotations

import math

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.eviction.gap_median import GapMedian
from mileage.policy.eviction.lru_k_heat import LruKHeatConfig, LruKHeatEviction
from mileage.policy.eviction.policy import BlockUse
from mileage.policy.eviction.prefix_cache import PrefixCache
from mileage.policy.eviction.return_aware import ReturnAwareConfig, ReturnAwareEviction
from mileage.policy.eviction.return_rates import ReturnRates


def use(*chain: int, returns: float | None = None) -> BlockUse:
    return BlockUse(chain, len(chain), returns)


def ranked(config: ReturnAwareConfig | None = None, *, blocks: int = 64) -> ReturnAwareEviction:
    return ReturnAwareEviction(config or ReturnAwareConfig(), blocks_max=blocks)


def test_lru_k_heat_is_its_formula() -> None:
    policy = LruKHeatEviction(LruKHeatConfig())
    policy.use(use(1), 10.0)
    policy.use(use(1), 40.0)
    policy.epoch(40.0)
    heat = 1 + 0.95 ** (30 / 60)
    # Ranks are of the last ranking, at most a sixteenth of the half-life ago.
    assert policy.rank(1) == pytest.approx(0.7 / 30 + 0.3 * heat, rel=0.05)
    policy.epoch(10_000.0)
    assert policy.rank(1) == pytest.approx(0.7 / 30, rel=0.02)


def test_lru_k_heat_ranks_blocks_at_rest_anew() -> None:
    cache = PrefixCache(LruKHeatEviction(LruKHeatConfig()), blocks_max=8)
    cache.serve(use(1), 0.0)
    cache.serve(use(1), 5000.0)  # seldom, but twice
    cache.serve(use(2), 5001.0)
    cache.serve(use(3), 5002.0)
    assert cache.evict(5003.0) == 2
    assert cache.evict(60_000.0) == 3


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        pytest.param({"alpha_ratio": 1.5}, "alpha_ratio", id="a weight above one"),
        pytest.param({"uses": 1}, "uses", id="one use has no interval"),
        pytest.param({"decay_ratio": 1.0}, "decay_ratio", id="a decay that is none"),
        pytest.param({"decay_s": 0.0}, "decay_s", id="a decay in no time"),
    ],
)
def test_settings_of_lru_k_heat_that_cannot_be(settings: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        LruKHeatConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "key",
    ["half_life_gaps", "half_life_start_s", "half_life_min_s", "weight_max", "ghosts_max"],
)
def test_settings_of_return_aware_that_cannot_be(key: str) -> None:
    with pytest.raises(ConfigError, match=f"return_aware.{key}"):
        ReturnAwareConfig(**{key: -1})


def test_a_block_used_often_outlives_newer_ones() -> None:
    cache = PrefixCache(ranked(), blocks_max=2)
    for second in range(5):
        cache.serve(use(1), float(second))
    cache.serve(use(2), 10.0)
    cache.serve(use(3), 11.0)
    assert 1 in cache


def test_heat_fades_with_the_half_life() -> None:
    cache = PrefixCache(ranked(), blocks_max=8)
    for second in range(4):
        cache.serve(use(1), float(second))
    cache.serve(use(2), 5000.0)
    assert cache.evict(5000.0) == 1


def test_heat_outlives_eviction() -> None:
    policy = ranked()
    policy.use(use(1), 0.0)
    policy.use(use(1), 1.0)
    policy.evicted(1)
    policy.use(use(1), 2.0)
    policy.use(use(2), 2.0)
    assert policy.rank(1) > policy.rank(2) + math.log(2)


def test_ghosts_are_bounded() -> None:
    policy = ranked(ReturnAwareConfig(ghosts_max=3))
    for block in range(10):
        policy.use(use(block), 0.0)
        policy.evicted(block)
    assert [math.isfinite(policy.rank(block)) for block in range(10)] == [False] * 7 + [True] * 3


def test_the_half_life_follows_the_gaps() -> None:
    policy = ranked()
    assert policy.half_life_s == 300.0
    for turn in range(4):
        for conversation in range(200):
            chain = range(conversation * 10, conversation * 10 + turn + 2)
            policy.use(use(*chain), turn * 50.0 + conversation * 0.01)
    assert policy.half_life_s == pytest.approx(100.0, rel=0.1)


def test_a_new_half_life_needs_no_new_ranks() -> None:
    policy = ranked()
    for number in range(10):
        policy.use(use(number, returns=0.1 + number / 20), 0.0)
    before = [policy.rank(number) for number in range(10)]
    for number in range(600):
        policy.use(use(100 + number), number * 0.001)
    for number in range(600):  # gaps of 9 s
        policy.use(use(100 + number, 1000 + number), 9.0 + number * 0.001)
    assert policy.half_life_s == pytest.approx(18.0, rel=0.1)
    assert [policy.rank(number) for number in range(10)] == before
    policy.use(use(5000, returns=1.0), 100.0)
    policy.use(use(5001, returns=1.0), 100.0 + policy.half_life_s)
    assert policy.rank(5001) - policy.rank(5000) == pytest.approx(math.log(2), rel=0.01)


def test_a_partial_block_is_stored_only_where_they_come_back() -> None:
    policy = ranked()
    once = [policy.use(BlockUse((n, n + 10_000), 1), float(n)) for n in range(50)]
    assert set(once) == {1}
    again = [policy.use(BlockUse((n, n + 10_000), 1), 100.0 + n) for n in range(50)]
    assert again[-1] == 2


def test_a_caller_that_knows_is_believed() -> None:
    policy = ranked()
    policy.use(use(1, returns=0.0), 0.0)
    policy.use(use(2, returns=1.0), 0.0)
    policy.use(use(3), 0.0)
    assert policy.rank(1) < policy.rank(3) <= policy.rank(2)


def test_lru_takes_over_where_it_hits_more() -> None:
    """Ever new sets of blocks, each used three times in turn: what was hot is of no use."""
    config = ReturnAwareConfig(half_life_gaps=100.0)
    policy = ReturnAwareEviction(config, blocks_max=40)
    cache = PrefixCache(policy, blocks_max=40)
    now_s = 0.0
    for number in range(120):
        for _ in range(3 if number % 2 else 12):
            for block in range(30):
                now_s += 0.01
                cache.serve(use(number * 30 + block), now_s)
    assert policy.falls_back


def test_kinds_that_return_weigh_more() -> None:
    rates = ReturnRates(memory_requests=1000)
    short, long = ReturnRates.kind(3, 2), ReturnRates.kind(200, 0)
    assert rates.relative(short) == rates.relative(long) == 1.0
    for number in range(200):
        rates.asked(short)
        rates.asked(long)
        if number % 2:
            rates.returned(short)
    assert rates.mean() == pytest.approx(0.25, rel=0.05)
    assert rates.relative(short) == pytest.approx(2.0, rel=0.05)
    assert rates.relative(long) < 0.1


def test_rates_forget_by_half() -> None:
    rates = ReturnRates(memory_requests=100)
    kind = ReturnRates.kind(4, 0)
    for _ in range(5000):
        rates.asked(kind)
        rates.returned(kind)
    for _ in range(400):
        rates.asked(kind)
    assert rates.mean() < 0.05


@pytest.mark.parametrize("gap_s", [0.0, 0.004, 1.0, 131.0, 86_400.0, 1e12])
def test_the_median_is_exact_to_a_bin(gap_s: float) -> None:
    gaps = GapMedian(memory_gaps=1000)
    assert gaps.median_s(samples_min=1) is None
    gaps.add(gap_s, 10)
    assert gaps.median_s(samples_min=11) is None
    median_s = gaps.median_s(samples_min=10)
    assert median_s is not None
    if 0.001 <= gap_s < 1e7:
        assert median_s == pytest.approx(gap_s, rel=0.1)


def test_old_gaps_lose_their_say() -> None:
    gaps = GapMedian(memory_gaps=100)
    for _ in range(1000):
        gaps.add(1.0)
    for _ in range(200):
        gaps.add(60.0)
    assert gaps.median_s(samples_min=10) == pytest.approx(60.0, rel=0.1)
