"""CacheTrace, replay and warm-up: what is counted, and which traces are refused."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError, TraceError
from mileage.policy.eviction.lru import LruEviction
from mileage.policy.eviction.warmup import WarmupConfig
from mileage.sim.cache_optimum import CacheOptimum
from mileage.sim.cache_replay import cache_result, replay_cache
from mileage.sim.cache_trace import CacheTrace
from mileage.sim.cache_warmup import Restart, warmup_effect
from mileage.workload.trace_request import TraceRequest


def request(at_s: float, *blocks: int, size: int = 10, tokens: int | None = None) -> TraceRequest:
    return TraceRequest(
        arrived_s=at_s,
        prompt_tokens=tokens or max(1, len(blocks) * size),
        output_tokens=1,
        prefix_blocks=blocks,
        block_tokens=size if blocks else 0,
    )


def test_blocks_are_numbered_and_counted() -> None:
    trace = CacheTrace([request(0.0, 70, 80), request(1.0), request(2.0, 70, 90, tokens=15)])
    assert trace.chains == [(0, 1), (0, 2)]
    assert [use.whole for use in trace.uses] == [2, 1]
    assert (len(trace), trace.blocks, trace.references, trace.unknown) == (2, 3, 4, 1)
    assert trace.duration_s == 2.0


@pytest.mark.parametrize(
    ("requests", "line", "message"),
    [
        pytest.param([], 0, "has no request", id="an empty trace"),
        pytest.param([request(0.0)], 0, "none of 1 requests", id="no prefix blocks at all"),
        pytest.param([request(0.0, 1, 2, 1)], 1, "block 1 is there twice", id="a ring"),
        pytest.param(
            [request(0.0, 1, 2), request(1.0, 3, 2)], 2, "follows another block", id="two parents"
        ),
        pytest.param(
            [request(0.0, 1), request(1.0, 2, size=20)], 2, "got 20, expected 10", id="two sizes"
        ),
        pytest.param([request(0.0, 1, 2, tokens=10)], 1, "2 prefix_blocks", id="too many blocks"),
    ],
)
def test_traces_that_contradict_themselves(
    requests: list[TraceRequest], line: int, message: str
) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        CacheTrace(requests, name="t")
    assert (caught.value.path, caught.value.line) == ("t", line)


def test_a_loop_that_does_not_fit_defeats_lru_and_not_the_optimum() -> None:
    trace = CacheTrace([request(float(i), i % 3) for i in range(9)])
    ticks: list[int] = []
    assert replay_cache(trace, LruEviction(), blocks_max=2, tick=ticks.append) == 0
    assert CacheOptimum(trace).hits(2) == 4
    assert CacheOptimum(trace).hits(3, tick=ticks.append) == 6
    assert ticks == [0, 0]


def test_the_share_is_unknown_where_nothing_can_be_hit() -> None:
    trace = CacheTrace([request(0.0, 1), request(1.0, 2)])
    counts = {"blocks_max": 1, "hits": 0, "optimum_hits": CacheOptimum(trace).hits(1)}
    result = cache_result(trace, "lru", "1", **counts)
    assert (result.hit_ratio, result.share_of_optimum_ratio) == (0.0, None)


def conversations(rounds: int) -> CacheTrace:
    """Ten prompts of three blocks that come again every 100 s."""
    return CacheTrace(
        request(100.0 * turn + i, *(i * 10 + d for d in range(3)))
        for turn in range(rounds)
        for i in range(10)
    )


@pytest.mark.parametrize(
    ("bytes_per_s", "load_ratio", "warm_hits", "loaded_s"),
    [
        pytest.param(None, 1.0, 30, 0.0, id="all is there at once"),
        pytest.param(None, 0.5, 15, 0.0, id="the later half"),
        pytest.param(None, 0.0, 0, None, id="nothing to load"),
        pytest.param(1e-6, 1.0, 0, None, id="too slow for the window"),
    ],
)
def test_what_a_warm_up_brings(
    bytes_per_s: float | None, load_ratio: float, warm_hits: int, loaded_s: float | None
) -> None:
    effect = warmup_effect(
        conversations(3),
        LruEviction,
        blocks_max=30,
        restart=Restart(at_s=200.0, window_s=50.0, block_bytes=10, bytes_per_s=bytes_per_s),
        config=WarmupConfig(chunk_bytes=20, concurrency=2, load_ratio=load_ratio),
    )
    assert (effect.references, effect.cold_hits, effect.warm_hits) == (30, 0, warm_hits)
    assert (effect.blocks_lost, effect.loaded_s) == (30, loaded_s)
    assert effect.swing_bytes == (40 if load_ratio else 0)
    assert effect.loaded_bytes == (300 * load_ratio if bytes_per_s is None else 0)
    assert effect.growth_bytes <= effect.swing_bytes


def test_blocks_come_in_while_requests_are_served() -> None:
    effect = warmup_effect(
        conversations(3),
        LruEviction,
        blocks_max=30,
        restart=Restart(at_s=200.0, window_s=50.0, block_bytes=10, bytes_per_s=40.0),
        config=WarmupConfig(chunk_bytes=30, concurrency=1),
    )
    # The last used prompts come first: each takes 0.75 s, and one is asked for each second. Those
    # that are asked for before are computed, and no longer loaded, but for the one on its way.
    assert (effect.warm_hits, effect.blocks_loaded) == (15, 15)
    assert (effect.loaded_s, effect.loaded_bytes) == (4.5, 180)


@pytest.mark.parametrize(
    ("chunk_bytes", "concurrency", "swing_bytes", "growth_bytes"),
    [
        pytest.param(30, 1, 30, 30, id="in pieces"),
        pytest.param(10, 4, 40, 10, id="in small pieces, some at a time"),
        pytest.param(1000, 1, 300, 240, id="in one piece: all in memory, two prompts in vain"),
    ],
)
def test_memory_swings_by_what_is_loaded_at_a_time(
    chunk_bytes: int, concurrency: int, swing_bytes: int, growth_bytes: int
) -> None:
    effect = warmup_effect(
        conversations(3),
        LruEviction,
        blocks_max=30,
        restart=Restart(at_s=200.0, window_s=50.0, block_bytes=10, bytes_per_s=200.0),
        config=WarmupConfig(chunk_bytes=chunk_bytes, concurrency=concurrency),
    )
    assert (effect.swing_bytes, effect.growth_bytes) == (swing_bytes, growth_bytes)


def test_what_is_ready_before_serving_hits_at_once() -> None:
    settings = {"at_s": 200.0, "window_s": 50.0, "block_bytes": 10, "bytes_per_s": 1e-6}
    effect = warmup_effect(
        conversations(3),
        LruEviction,
        blocks_max=30,
        restart=Restart(**settings, ready_ratio=0.5),  # type: ignore[arg-type]
        config=WarmupConfig(chunk_bytes=10, concurrency=1),
    )
    assert (effect.warm_hits, effect.blocks_loaded, effect.loaded_s) == (15, 15, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("at_s", -1.0),
        ("window_s", 0.0),
        ("block_bytes", 0),
        ("bytes_per_s", 0.0),
        ("ready_ratio", 1.5),
    ],
)
def test_restarts_that_cannot_be(key: str, value: float) -> None:
    settings = {"at_s": 1.0, "block_bytes": 1, key: value}
    with pytest.raises(ConfigError, match=f"restart.{key}"):
        Restart(**settings)  # type: ignore[arg-type]
