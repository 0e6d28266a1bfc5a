"""plan_warmup and WarmupQueue: the order, the size of pieces, how many are loaded at a time."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.eviction.warmup import (
    CachedBlock,
    WarmupChunk,
    WarmupConfig,
    WarmupQueue,
    plan_warmup,
)


def chain(start: int, length: int, *, heat: float, used_s: float) -> list[CachedBlock]:
    return [
        CachedBlock(start + i, start + i - 1 if i else None, heat, used_s, 10)
        for i in range(length)
    ]


def blocks_of(chunks: list[WarmupChunk]) -> list[object]:
    return [block for chunk in chunks for block in chunk.blocks]


def test_the_hottest_come_first_then_the_latest() -> None:
    old_hot = chain(0, 2, heat=9.0, used_s=1.0)
    middle = chain(10, 3, heat=1.0, used_s=5.0)
    new_cold = chain(20, 3, heat=0.0, used_s=9.0)
    plan = plan_warmup([*new_cold, *middle, *old_hot], WarmupConfig(hot_ratio=0.25))
    assert blocks_of(plan) == [0, 1, 20, 21, 22, 10, 11, 12]


def test_ancestors_are_loaded_before_though_they_are_colder() -> None:
    blocks = [CachedBlock(1, None, 0.0, 0.0, 10), CachedBlock(2, 1, 5.0, 0.0, 10)]
    assert blocks_of(plan_warmup(blocks[::-1], WarmupConfig())) == [1, 2]


@pytest.mark.parametrize(("load_ratio", "loaded"), [(0.0, 0), (0.25, 3), (0.5, 5), (1.0, 10)])
def test_a_share_is_loaded(load_ratio: float, loaded: int) -> None:
    plan = plan_warmup(
        chain(0, 10, heat=1.0, used_s=0.0), WarmupConfig(load_ratio=load_ratio, hot_ratio=1.0)
    )
    assert blocks_of(plan) == list(range(loaded))


@pytest.mark.parametrize(
    ("chunk_bytes", "sizes"),
    [
        pytest.param(25, [20, 20, 10], id="pieces are filled with whole blocks"),
        pytest.param(5, [10] * 5, id="a block that is larger goes alone"),
        pytest.param(1000, [50], id="one piece holds all"),
    ],
)
def test_pieces_are_bounded(chunk_bytes: int, sizes: list[int]) -> None:
    plan = plan_warmup(chain(0, 5, heat=1.0, used_s=0.0), WarmupConfig(chunk_bytes=chunk_bytes))
    assert [chunk.size_bytes for chunk in plan] == sizes


def test_so_many_pieces_are_loaded_at_a_time_and_given_back_in_order() -> None:
    chunks = [WarmupChunk((i,), (10,)) for i in range(4)]
    queue = WarmupQueue(chunks, WarmupConfig(concurrency=2))
    assert [queue.begin(), queue.begin(), queue.begin()] == [(0, chunks[0]), (1, chunks[1]), None]
    assert queue.done(1) == []
    assert queue.begin() is None
    assert queue.done(0) == [0, 1]
    assert queue.staged_bytes == 0
    assert [queue.begin(), queue.begin()] == [(2, chunks[2]), (3, chunks[3])]
    assert queue.done(2, loaded=False) == []
    assert queue.done(3) == [3]
    assert queue.finished
    assert queue.staged_bytes_max == 20


def test_what_is_not_wanted_any_more_is_left_out() -> None:
    chunks = [WarmupChunk((0, 1), (10, 20)), WarmupChunk((2,), (10,)), WarmupChunk((3,), (10,))]
    queue = WarmupQueue(chunks, WarmupConfig(concurrency=2))
    assert queue.begin(lambda block: block in (1, 3)) == (0, WarmupChunk((1,), (20,)))
    assert queue.begin(lambda block: block == 3) == (1, chunks[2])
    assert queue.staged_bytes == 30
    assert not queue.finished
    assert (queue.done(1), queue.done(0)) == ([], [1, 3])
    assert queue.finished


def test_nothing_wanted_is_nothing_to_load() -> None:
    queue = WarmupQueue([WarmupChunk((0,), (10,))], WarmupConfig())
    assert queue.begin(lambda block: False) is None
    assert queue.finished


@pytest.mark.parametrize(
    ("key", "value"), [("chunk_bytes", 0), ("concurrency", 0), ("load_ratio", 2), ("hot_ratio", -1)]
)
def test_settings_that_cannot_be(key: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"warmup.{key}"):
        WarmupConfig(**{key: value})
