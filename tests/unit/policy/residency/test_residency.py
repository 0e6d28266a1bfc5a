"""Which adapter makes room: by hand, and against what can be had at best."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.residency.choose import RESIDENCY_POLICIES, ResidencyConfig, make_residency
from mileage.policy.residency.heat import HeatConfig

ADAPTERS, SLOTS = 100, 10


def loads(config: ResidencyConfig, uses: list[tuple[float, str]], slots: int = SLOTS) -> list[bool]:
    """Whether each use loaded its adapter."""
    policy, resident, loaded = make_residency(config), dict[str, None](), []
    for now_s, adapter in uses:
        policy.use(adapter, now_s)
        loaded.append(adapter not in resident)
        if adapter not in resident and len(resident) == slots:
            del resident[policy.leaves(resident, now_s)]
        resident[adapter] = None
    return loaded


def zipf(random: Random, count: int, *, every_s: float = 1.0, first: int = 0) -> list[int]:
    """Ranks by a Zipf law with exponent 1.2, the most popular being `first`."""
    weights = list(accumulate(1.0 / (rank + 1) ** 1.2 for rank in range(ADAPTERS)))
    drawn = random.choices(range(ADAPTERS), cum_weights=weights, k=count)
    return [(first + rank) % ADAPTERS for rank in drawn]


def timed(ranks: list[int], every_s: float = 1.0) -> list[tuple[float, str]]:
    return [(every_s * at, f"lora-{rank}") for at, rank in enumerate(ranks)]


def misses(policy: str, uses: list[tuple[float, str]], skip: int = 2000, **heat: float) -> float:
    config = ResidencyConfig(policy=policy, heat=HeatConfig(**heat))
    loaded = loads(config, uses)[skip:]
    return sum(loaded) / len(loaded)


def test_lru_lets_the_one_go_whose_last_use_is_the_longest_ago() -> None:
    policy = make_residency(ResidencyConfig())
    for at, adapter in enumerate("abca"):
        policy.use(adapter, float(at))
    assert policy.leaves("abc", 9.0) == "b"
    assert policy.leaves("ac", 9.0) == "c"


def test_heat_lets_the_one_go_that_is_wanted_least_often() -> None:
    policy = make_residency(ResidencyConfig(policy="heat"))
    for at, adapter in enumerate("aaabbc"):
        policy.use(adapter, float(at))
    assert policy.leaves("abc", 6.0) == "c"
    assert policy.leaves("ab", 6.0) == "b"


def test_a_use_counts_half_after_a_half_life() -> None:
    policy = make_residency(ResidencyConfig(policy="heat", heat=HeatConfig(half_life_s=10.0)))
    policy.use("old", 0.0)
    policy.use("old", 0.0)
    policy.use("new", 9.0)
    assert policy.leaves(("old", "new"), 9.0) == "new"
    for now_s in (11.0, 1000.0):
        policy.use("new", 11.0)
        assert policy.leaves(("old", "new"), now_s) == "old"


def test_of_equally_cold_ones_the_least_recently_used_goes() -> None:
    policy = make_residency(ResidencyConfig(policy="heat"))
    assert policy.leaves(("x", "y"), 0.0) == "x"
    policy.use("x", 1e9)
    assert policy.leaves(("x", "y"), 1e9) == "y"


def test_heat_comes_close_to_keeping_the_most_popular_and_lru_does_not() -> None:
    """With independent requests nothing that loads what is wanted does better in the long run: one
    place is for what was wanted last."""
    uses = timed(zipf(Random(1), 22_000))
    popular = {f"lora-{rank}" for rank in range(SLOTS - 1)}
    best = sum(adapter not in popular for _, adapter in uses[2000:]) / 20_000
    lru, heat = misses("lru", uses), misses("heat", uses, half_life_s=1000.0)
    assert 0.95 * best < heat < 1.05 * best
    assert lru > 1.25 * best


def test_after_a_change_of_what_is_popular_heat_is_soon_the_better_one_again() -> None:
    random = Random(2)
    before, after = zipf(random, 6000), zipf(random, 6000, first=50)
    uses = timed([*before, *after])
    first = {name: misses(name, uses[:6600], skip=6000) for name in RESIDENCY_POLICIES}
    then = {name: misses(name, uses, skip=8000) for name in RESIDENCY_POLICIES}
    assert first["heat"] < 2.0 * first["lru"]
    assert then["heat"] < 0.9 * then["lru"]


def test_an_adapter_that_was_away_comes_back_as_warm_as_it_was_left() -> None:
    policy = make_residency(ResidencyConfig(policy="heat"))
    for _ in range(5):
        policy.use("a", 0.0)
    for _ in range(3):
        policy.use("b", 0.0)
    policy.use("a", 1.0)  # loaded again
    assert policy.leaves(("a", "b"), 1.0) == "b"


def test_what_cannot_be_is_refused_by_its_key() -> None:
    with pytest.raises(
        ConfigError, match=r"residency\.policy: got 'mru', expected one of lru, heat"
    ):
        ResidencyConfig(policy="mru")
    with pytest.raises(ConfigError, match=r"heat\.half_life_s"):
        HeatConfig(half_life_s=0.0)
