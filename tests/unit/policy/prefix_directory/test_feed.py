"""KvFeed and EventSequence: an engine's events, and what its directory knows then."""

from __future__ import annotations

from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.feed import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
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
