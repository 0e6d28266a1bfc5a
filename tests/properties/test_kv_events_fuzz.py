"""Whatever an engine's publisher sends: listening goes on, and never more is known than is true."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.feed import KvFeed
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig
from mileage.scrape import kv_events
from mileage.scrape.kv_events import KvEvents, decode_batch

pytest.importorskip("zmq", reason="pyzmq is not installed")

END = (2**64 - 1).to_bytes(8, "big")

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
hashes = st.lists(st.integers(0, 5) | st.binary(max_size=1), max_size=4)
event = st.fixed_dictionaries(
    {"type": st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"])},
    optional={
        "block_hashes": hashes | values,
        "parent_block_hash": st.integers(0, 5) | values,
        "token_ids": st.lists(st.integers(-(2**63), 2**64 - 1), max_size=8) | values,
        "block_size": st.integers(-1, 3) | st.sampled_from([2**63, 2**64 - 1]) | values,
        "medium": st.sampled_from([None, "GPU", "CPU"]) | st.text(max_size=3) | values,
        "lora_name": st.none() | values,
        "extra_keys": st.none() | values,
        "group_idx": st.none() | st.integers(-1, 1) | values,
    },
)
batch = st.tuples(st.floats(0, 1e9), st.lists(event, max_size=4), st.none() | st.integers(0, 1))
number = st.integers(0, 4) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1])
message = st.tuples(
    st.just(b""),
    number.map(lambda each: each.to_bytes(8, "big")),
    batch.map(msgspec.msgpack.encode) | values.map(msgspec.msgpack.encode) | st.binary(max_size=8),
) | st.lists(st.binary(max_size=9), max_size=4)


@given(st.lists(message, max_size=12))
def test_no_message_ends_the_listening_or_makes_anything_grow(messages: list[Any]) -> None:
    directory = BlockDirectory(blocks_max=8)
    memory = HotPrefixes(WarmUpConfig(enabled=True))
    events = KvEvents("tcp://h:1", None, directory, replica="r", memory=memory)

    async def run() -> None:
        for each in messages:
            await events._hear(each)
            assert len(directory) <= 8
            assert 0 <= events.feed.stored_tokens <= 2**32

    asyncio.run(run())
    assert events.totals.bad == sum(decode_batch(each) is None for each in messages)


class Engine:
    """Publishes what a small cache does; keeps some batches, and tells them again in its ways."""

    def __init__(self, keep: int, replay: str) -> None:
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=keep)
        self.replay = replay
        self.lives = 0
        self.start()

    def start(self) -> None:
        """Anew, with an empty cache."""
        self.kept.clear()
        self.number, self.lives = 0, self.lives + 1
        self.directory = BlockDirectory()
        self.feed = KvFeed(self.directory, "r", 0)

    def batch(self, events: Sequence[dict[str, Any]]) -> tuple[bytes, bytes, bytes]:
        """The next message; the cache is as it says."""
        payload = msgspec.msgpack.encode([float(self.lives), events, 0])
        head = self.number.to_bytes(8, "big")
        found = decode_batch((b"", head, payload))
        assert found is not None
        self.feed.apply(found[1])
        self.kept.append((self.number, payload))
        self.number += 1
        return b"", head, payload


class Dealer:
    """The other end of the engine's replay socket."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._answers: list[tuple[bytes, ...]] = []

    async def send_multipart(self, frames: Sequence[bytes]) -> None:
        """Ask."""
        first = int.from_bytes(frames[1], "big")
        engine = self._engine
        for number, payload in engine.kept:
            if number >= first:
                said = b"\xc1" if engine.replay == "garbled" else payload
                self._answers.append((b"", b"", number.to_bytes(8, "big"), said))
        self._answers.append((b"", b"", END, b""))
        if engine.replay == "breaks off":
            del self._answers[1:]

    async def recv_multipart(self) -> tuple[bytes, ...]:
        """What it answers; nothing comes where it is silent, or has broken off."""
        if not self._answers or self._engine.replay == "silent":
            raise TimeoutError
        return self._answers.pop(0)

    def close(self, linger: int = 0) -> None:
        """No more."""
        self._answers.clear()


def stored(block: int, parent: int | None) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [block],
        "parent_block_hash": parent,
        "token_ids": [block],
        "block_size": 1,
    }


cache_event = (
    st.builds(stored, st.integers(1, 6), st.none())
    | st.builds(lambda block, parent: stored(block + 10, parent), *[st.integers(1, 6)] * 2)
    | st.builds(
        lambda block: {"type": "BlockRemoved", "block_hashes": [block]},
        st.integers(1, 6) | st.integers(11, 16),
    )
    | st.just({"type": "AllBlocksCleared"})
)
step = st.tuples(
    st.sampled_from(["heard", "heard", "heard", "lost", "garbled", "restart"]),
    st.lists(cache_event, max_size=3),
)


@given(
    st.lists(step, max_size=20),
    st.integers(1, 6),
    st.sampled_from(["whole", "whole", "silent", "garbled", "breaks off"]),
)
def test_after_each_message_no_more_is_known_than_the_engine_holds(
    steps: list[tuple[str, list[dict[str, Any]]]], keep: int, replay: str
) -> None:
    engine, directory = Engine(keep, replay), BlockDirectory()
    events = KvEvents("tcp://h:1", "tcp://h:2", directory, replica="r")
    events._connect = lambda kind, url: Dealer(engine)  # type: ignore[method-assign]

    async def run() -> None:
        for what, said in steps:
            if what == "restart":
                engine.start()
            topic, head, payload = engine.batch(said)
            if what == "garbled":
                await events._hear((topic, head, b"\xc1"))
            elif what != "lost":
                await events._hear((topic, head, payload))
                true = set(engine.directory.held_by("r"))
                assert set(directory.held_by("r")) <= true
                if not events.totals.lost and engine.lives == 1:
                    assert set(directory.held_by("r")) == true
                assert events.feed.sequence.next == engine.number

    asyncio.run(run())


def test_an_engine_that_got_further_than_the_old_one_had_is_a_new_one() -> None:
    engine, directory = Engine(100, "whole"), BlockDirectory()
    events = KvEvents("tcp://h:1", "tcp://h:2", directory, replica="r")
    events._connect = lambda kind, url: Dealer(engine)  # type: ignore[method-assign]

    async def run() -> None:
        await events._hear(engine.batch([stored(1, None)]))
        engine.start()
        for _ in range(3):
            engine.batch([])
        await events._hear(engine.batch([stored(2, None)]))

    asyncio.run(run())
    assert events.totals.restarts == 1
    assert set(directory.held_by("r")) == set(engine.directory.held_by("r"))


def test_of_many_bad_messages_the_log_has_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = KvEvents("tcp://u:secret@h:1", None, BlockDirectory(), replica="gpu-1")
    with caplog.at_level(logging.WARNING, kv_events.__name__):
        for _ in range(100):
            asyncio.run(events._hear((b"", b"\0" * 8, b"\xc1")))
        monkeypatch.setattr(kv_events, "_SAY_AGAIN_S", 0.0)
        asyncio.run(events._hear((b"", b"\0" * 8, b"\xc1")))
    first, second = (record.getMessage() for record in caplog.records)
    assert first == second
    assert "gpu-1" in first
    assert "cannot be read: expected msgpack as vLLM 0.32 writes it" in first
    assert "secret" not in first


@given(st.lists(st.lists(cache_event | event, max_size=4), max_size=6), st.integers(1, 5))
def test_a_feed_knows_no_more_hashes_than_it_may(batches: list[Any], hashes_max: int) -> None:
    directory = BlockDirectory()
    feed = KvFeed(directory, "r", 0, hashes_max=hashes_max)
    for said in batches:
        found = decode_batch((b"", b"\0" * 8, msgspec.msgpack.encode([0.0, said, 0])))
        if found is not None:
            feed.apply(found[1])
            assert len(feed._ids) <= hashes_max
            assert set(directory.held_by("r")) <= {block for block, _ in feed._ids.values()}
