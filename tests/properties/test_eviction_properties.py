"""Eviction: the optimum is one, no policy exceeds it, and parents outlive children."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.policy.eviction.choose import EVICTION_POLICIES, EvictionConfig, make_eviction
from mileage.policy.eviction.policy import Block, BlockUse
from mileage.policy.eviction.prefix_cache import PrefixCache
from mileage.policy.eviction.warmup import CachedBlock, WarmupConfig, plan_warmup
from mileage.sim.cache_optimum import CacheOptimum
from mileage.sim.cache_replay import replay_cache
from mileage.sim.cache_trace import CacheTrace
from mileage.workload.trace_request import TraceRequest

Chain = tuple[int, ...]


@st.composite
def traces(draw: st.DrawFn, *, blocks: int, requests: int) -> list[Chain]:
    """Prompts that are paths from a root in a random tree."""
    parents = [draw(st.integers(-1, i - 1)) for i in range(blocks)]
    chains = []
    for _ in range(draw(st.integers(1, requests))):
        at = draw(st.integers(0, blocks - 1))
        chain = [at]
        while parents[at] >= 0:
            at = parents[at]
            chain.append(at)
        chains.append(tuple(reversed(chain)))
    return chains


def trace_of(chains: list[Chain], gap_s: float = 1.0) -> CacheTrace:
    return CacheTrace(
        TraceRequest(
            arrived_s=i * gap_s,
            prompt_tokens=len(chain),
            output_tokens=1,
            prefix_blocks=chain,
            block_tokens=1,
        )
        for i, chain in enumerate(chains)
    )


def best_by_trying(chains: list[Chain], blocks_max: int) -> int:
    """The most hits over all ways to keep a set of what was there and what came, prefix or not."""

    @cache
    def best(number: int, stored: frozenset[int]) -> int:
        if number == len(chains):
            return 0
        chain = chains[number]
        hits = next((i for i, block in enumerate(chain) if block not in stored), len(chain))
        return hits + max(
            best(number + 1, kept) for kept in subsets(stored | frozenset(chain), blocks_max)
        )

    return best(0, frozenset())


@cache
def subsets(blocks: frozenset[int], most: int) -> tuple[frozenset[int], ...]:
    found = [frozenset[int]()]
    for block in blocks:
        found += [kept | {block} for kept in found if len(kept) < most]
    return tuple(found)


@settings(max_examples=40, deadline=None)
@given(chains=traces(blocks=5, requests=5), blocks_max=st.integers(1, 3))
def test_the_optimum_is_what_trying_everything_finds(chains: list[Chain], blocks_max: int) -> None:
    assert CacheOptimum(trace_of(chains)).hits(blocks_max) == best_by_trying(chains, blocks_max)


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@settings(max_examples=40, deadline=None)
@given(chains=traces(blocks=30, requests=60), blocks_max=st.integers(0, 20), data=st.data())
def test_no_policy_exceeds_the_optimum_whatever_it_is_told(
    policy: str, chains: list[Chain], blocks_max: int, data: st.DataObject
) -> None:
    hint = st.none() | st.floats(0.0, 1.0)
    hints = data.draw(st.lists(hint, min_size=len(chains), max_size=len(chains)))
    trace = trace_of(chains, gap_s=20.0).with_hints(hints)
    ranks = make_eviction(EvictionConfig(policy=policy), blocks_max=blocks_max)
    hits = replay_cache(trace, ranks, blocks_max=blocks_max)
    assert hits <= CacheOptimum(trace).hits(blocks_max)


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@settings(max_examples=40, deadline=None)
@given(chains=traces(blocks=30, requests=60), blocks_max=st.integers(1, 20), data=st.data())
def test_parents_outlive_children_and_pinned_blocks_stay(
    policy: str, chains: list[Chain], blocks_max: int, data: st.DataObject
) -> None:
    ranks = make_eviction(EvictionConfig(policy=policy), blocks_max=blocks_max)
    cache = PrefixCache(ranks, blocks_max=blocks_max)
    pinned: list[Chain] = []
    for number, chain in enumerate(chains):
        hint = data.draw(st.none() | st.floats(0.0, 1.0))
        cache.serve(BlockUse(chain, len(chain), hint), number * 20.0)
        if data.draw(st.booleans()):
            held = chain[: cache.match(chain)]
            cache.pin(held)
            pinned.append(held)
        if len(pinned) > 2:
            cache.unpin(pinned.pop(0))
        for block in cache:
            parent = cache.parent(block)
            assert parent is None or parent in cache
        assert all(block in cache for held in pinned for block in held)
    while pinned:
        cache.unpin(pinned.pop())
    before = len(cache)
    assert sum(cache.evict(1e6) is not None for _ in range(before + 1)) == before


@settings(max_examples=60, deadline=None)
@given(
    chains=traces(blocks=30, requests=20),
    load_percent=st.integers(0, 100),
    hot_percent=st.integers(0, 100),
    chunk_bytes=st.integers(1, 40),
    data=st.data(),
)
def test_any_part_of_a_warm_up_can_be_used(
    chains: list[Chain], load_percent: int, hot_percent: int, chunk_bytes: int, data: st.DataObject
) -> None:
    """Every block comes after its parent, whatever the heat, and each once."""
    parents: dict[Block, Block | None] = {chain[0]: None for chain in chains}
    parents |= {block: parent for chain in chains for parent, block in pairwise(chain)}
    blocks = [
        CachedBlock(block, parent, data.draw(st.floats(-9, 9)), data.draw(st.floats(0, 9)), 10)
        for block, parent in parents.items()
    ]
    config = WarmupConfig(
        chunk_bytes=chunk_bytes, load_ratio=load_percent / 100, hot_ratio=hot_percent / 100
    )
    plan = plan_warmup(blocks, config)
    order = [block for chunk in plan for block in chunk.blocks]
    place = {block: i for i, block in enumerate(order)}
    assert len(place) == len(order)
    for block in order:
        parent = parents[block]
        assert parent is None or place[parent] < place[block]
    assert load_percent * len(blocks) <= 100 * len(order) <= load_percent * len(blocks) + 100
    assert all(chunk.size_bytes <= max(chunk_bytes, 10) for chunk in plan)


@settings(max_examples=40, deadline=None)
@given(blocks=st.lists(st.integers(0, 30), min_size=1, max_size=300), blocks_max=st.integers(1, 20))
def test_lru_of_single_blocks_is_libcachesims(blocks: list[int], blocks_max: int) -> None:
    library = pytest.importorskip("libcachesim")
    other, request = library.LRU(cache_size=blocks_max), library.Request()
    ours = PrefixCache(
        make_eviction(EvictionConfig(policy="lru"), blocks_max=blocks_max), blocks_max=blocks_max
    )
    for number, block in enumerate(blocks):
        request.obj_id = block + 1
        assert bool(ours.serve(BlockUse((block,), 1), float(number))) == other.get(request)
