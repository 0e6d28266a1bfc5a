"""KvFeed and EventSequence: an engine's events, and what its directory knows then."""

from __future__ import annotations

import pytest

from mileage.policy.prefix_directory.directory import BlockDirectory, Owner
from mileage.policy.prefix_directory.feed import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    KvEvent,
    KvFeed,
)
from mileage.policy.prefix_directory.sequence import EventSequence

TOKENS = list(range(32))


def stored(
    hashes: list[EngineHash], parent: EngineHash | None = None, start: int = 0
) -> BlockStored:
    size = 4
    tokens = TOKENS[start : start + size * len(hashes)]
    return BlockStored(hashes, parent, tokens, size, "GPU")


def test_engines_with_other_seeds_hold_the_same_blocks() -> None:
    directory = BlockDirectory()
    one, two = KvFeed(directory, "one", 0), KvFeed(directory, "two", 0)
    one.apply([stored([b"a", b"b"])])
    two.apply([stored([7]), stored([8], parent=7, start=4)])
    assert len(directory) == 2
    assert all(directory.state(block) == "shared" for block in directory.held_by("one"))
    two.apply([BlockRemoved([8], "GPU")])
    assert len(directory.held_by("two")) == 1
    assert two.evicting
    assert (one.stored_tokens, two.stored_tokens) == (8, 4)
    one.apply([AllBlocksCleared()])
    assert directory.held_by("one") == []
    assert one.stored_tokens == 0


def test_salts_and_adapters_make_other_blocks() -> None:
    directory = BlockDirectory()
    for replica, event in {
        "plain": BlockStored([1], None, TOKENS[:4], 4),
        "salted": BlockStored([1], None, TOKENS[:4], 4, extra_keys=[("salt",)]),
        "adapter": BlockStored([1], None, TOKENS[:4], 4, lora_name="sql"),
    }.items():
        KvFeed(directory, replica, 0).apply([event])
    assert len(directory) == 3


def test_what_cannot_be_known_is_left_out_and_counted() -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "one", 0)
    feed.apply(
        [
            stored([b"c"], parent=b"from before"),
            BlockStored([b"d", b"e"], None, [1, 2], 4),
            BlockStored([b"f"], None, TOKENS[:4], 4, group_idx=1),
            BlockRemoved([b"unknown"], "GPU"),
        ]
    )
    assert len(directory) == 0
    assert feed.unknown_total == 5


def test_a_block_in_two_memories_is_there_until_both_have_dropped_it() -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "one", 0)
    on_host = BlockStored([b"a"], None, TOKENS[:4], 4, "CPU")
    feed.apply([stored([b"a"]), stored([b"a"]), on_host])
    (block,) = directory.held_by("one")
    assert directory.state(block) == "shared"
    feed.apply([BlockRemoved([b"a"], "GPU")])
    assert directory.state(block) == "modified"
    feed.apply([BlockRemoved([b"a"], "CPU")])
    assert block not in directory


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(BlockStored([1], None, TOKENS[:4], 0), id="blocks have no size"),
        pytest.param(BlockStored([1], None, TOKENS[:4], -4), id="their size is negative"),
        pytest.param(
            BlockStored([1], None, TOKENS[:4], 2**63), id="their size is no number of tokens"
        ),
        pytest.param(BlockStored([1], None, [0] * 65_537, 65_537), id="one takes long to look at"),
        pytest.param(BlockStored([], None, [], 2**62), id="none is stored"),
        pytest.param(BlockStored([1], None, TOKENS[:3], 4), id="tokens are missing"),
        pytest.param(
            BlockStored([1], None, TOKENS[:4], 4, lora_name="a" * 1025), id="a name is a text"
        ),
        pytest.param(
            BlockStored([1, b"h" * 65], None, TOKENS[:8], 4), id="a hash is longer than any"
        ),
    ],
)
def test_an_event_that_cannot_be_true_changes_nothing(event: BlockStored) -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "one", 0)
    feed.apply([stored([b"a"]), event])
    assert len(directory) == 1
    assert (feed.stored_tokens, feed.unknown_total) == (4, len(event.block_hashes))


def test_an_engine_has_no_more_than_a_few_memories() -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "one", 0)
    for medium in range(20):
        feed.apply([BlockStored([1], None, TOKENS[:4], 4, f"{medium}")])
        feed.apply([BlockRemoved([2], f"{medium}")])
    (block,) = directory.held_by("one")
    assert directory.owners(block) == tuple(Owner("one", 0, f"{medium}") for medium in range(8))
    assert feed.unknown_total == 12 + 20


def test_what_a_hash_stood_for_before_is_not_held_any_more() -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "one", 0)
    feed.apply([BlockStored([1, 1], None, TOKENS[:8], 4), BlockStored([1], None, [9] * 4, 4)])
    assert len(directory.held_by("one")) == 1
    feed.apply([BlockRemoved([1])])
    assert directory.held_by("one") == []


def test_of_more_blocks_than_are_remembered_the_oldest_are_held_by_nobody() -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "one", 0, hashes_max=16)
    feed.apply([BlockStored([number], None, [number], 1) for number in range(17)])
    assert (len(directory.held_by("one")), feed.forgotten_total) == (15, 2)
    feed.apply([BlockRemoved([0, 1, 2])])
    assert (len(directory.held_by("one")), feed.unknown_total) == (14, 2)
    assert feed.stored_tokens == 14


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_a_long_event_is_applied_in_parts_and_is_the_same(size: int) -> None:
    blocks = 600 if size < 1000 else 3
    tokens = [number % 1000 for number in range(size * blocks)]
    keys = [None, ("salt",), *[None] * (blocks - 2)]
    hashes: list[EngineHash] = list(range(1, blocks + 1))
    whole = BlockStored(hashes, None, tokens, size, extra_keys=keys)
    one_by_one = [
        BlockStored([at + 1], at or None, tokens[at * size :][:size], size, extra_keys=[keys[at]])
        for at in range(blocks)
    ]
    directory = BlockDirectory()
    parts = list(KvFeed(directory, "whole", 0).steps([whole, BlockRemoved(hashes[1:])]))
    KvFeed(directory, "parts", 0).apply([*one_by_one, BlockRemoved(hashes[1:])])
    assert directory.held_by("whole") == directory.held_by("parts")
    assert len(directory) == 1
    assert len(parts) > 3
    assert max(parts) <= 400


def test_every_event_is_a_step_also_an_empty_one() -> None:
    feed = KvFeed(BlockDirectory(), "one", 0)
    events: list[KvEvent] = [
        BlockStored([]),
        BlockRemoved([]),
        AllBlocksCleared(),
        AllBlocksCleared(),
    ]
    assert len(list(feed.steps(events))) == 4
    assert feed.cleared_total == 2


def test_numbers_tell_gaps_and_new_engines() -> None:
    sequence = EventSequence()
    assert sequence.see(0) == "next"
    sequence.take(0)
    assert sequence.see(1) == "next"
    assert sequence.see(3) == "gap"
    sequence.take(3)
    assert sequence.next == 4
    assert sequence.see(0) == "restart"
    sequence.restart()
    assert sequence.see(0) == "next"
    assert sequence.see(2) == "gap"
