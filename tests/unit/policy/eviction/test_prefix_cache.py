"""PrefixCache: parents outlive their children, pinned blocks stay, and nothing leaks."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.eviction.choose import EVICTION_POLICIES, EvictionConfig, make_eviction
from mileage.policy.eviction.lru import LruEviction
from mileage.policy.eviction.policy import BlockUse, ContentKey
from mileage.policy.eviction.prefix_cache import PrefixCache


def use(*chain: int) -> BlockUse:
    return BlockUse(chain, len(chain))


def test_lru_evicts_the_leaf_that_was_not_used_for_the_longest_time() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=3)
    assert cache.serve(use(1, 2), 0.0) == 0
    assert cache.serve(use(1, 3), 1.0) == 1
    assert cache.serve(use(1, 4), 2.0) == 1
    assert sorted(cache) == [1, 3, 4]
    assert cache.serve(use(1, 3), 3.0) == 2


def test_a_prompt_longer_than_the_cache_keeps_its_head() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=2)
    cache.serve(use(1, 2, 3, 4), 0.0)
    assert sorted(cache) == [1, 2]


def test_a_cache_without_room_stores_nothing() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=0)
    assert [cache.serve(use(1, 2), float(i)) for i in range(3)] == [0, 0, 0]
    assert len(cache) == 0


def test_pinned_blocks_and_their_parents_stay() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=8)
    cache.serve(use(1, 2), 0.0)
    cache.serve(
        use(
            3,
        ),
        1.0,
    )
    cache.pin([1, 2])
    assert cache.evict(2.0) == 3
    assert cache.evict(2.0) is None
    cache.unpin([1, 2])
    assert [cache.evict(3.0), cache.evict(3.0), cache.evict(3.0)] == [2, 1, None]
    assert cache.evictions == 3


def test_a_block_pinned_twice_needs_two_unpins() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=8)
    cache.serve(use(1), 0.0)
    cache.pin([1])
    cache.pin([1])
    cache.unpin([1])
    assert cache.evict(1.0) is None
    cache.unpin([1])
    assert cache.evict(1.0) == 1


def test_a_pool_stores_blocks_as_they_are_computed() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=8)
    assert cache.use(use(1, 2, 3), 0.0) == 3
    assert cache.match([1, 2, 3]) == 0
    cache.insert(1, None)
    cache.insert(2, 1)
    cache.insert(2, 1)
    assert cache.match([1, 2, 3]) == 2
    assert cache.parent(2) == 1
    assert cache.parent(1) is None
    cache.remove(2)
    assert list(cache) == [1]


def test_what_is_never_stored_is_forgotten() -> None:
    told: list[object] = []

    class Told(LruEviction):
        __slots__ = ()

        def evicted(self, block: object) -> None:
            told.append(block)

    cache = PrefixCache(Told(), blocks_max=2)
    for number in range(5):
        cache.use(use(number), float(number))
    assert told == [0, 1, 2]


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_versions_of_a_content_are_different_blocks(policy: str) -> None:
    cache = PrefixCache(make_eviction(EvictionConfig(policy=policy), blocks_max=4), blocks_max=4)
    old, new = ContentKey(7, 1), ContentKey(7, 2)
    cache.serve(BlockUse([old], 1), 0.0)
    assert cache.serve(BlockUse([new], 1), 1.0) == 0
    assert cache.serve(BlockUse([old], 1), 2.0) == 1


def test_the_heap_does_not_grow_with_uses() -> None:
    cache = PrefixCache(LruEviction(), blocks_max=4)
    for number in range(10_000):
        cache.serve(use(number % 4), float(number))
    assert len(cache._heap) < 2000


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"eviction\.policy: got 'lfu', expected one of lru"):
        EvictionConfig(policy="lfu")


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="blocks_max"):
        PrefixCache(LruEviction(), blocks_max=-1)
