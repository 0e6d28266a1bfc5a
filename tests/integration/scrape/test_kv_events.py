"""KvEvents over real sockets: batches, gaps that are asked for, new engines, bad frames."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from mileage.core.errors import ConfigError
from mileage.core.replica import ReplicaView
from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.feed import AllBlocksCleared, BlockRemoved, BlockStored
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig
from mileage.scrape.kv_cache import KvCache
from mileage.scrape.kv_events import KvEvents, decode_batch
from mileage.scrape.poller import Poller
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import FetchError, FetchResponse

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")

WAIT_S = 60.0
END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """Publishes as vLLM 0.32 does; `keep` batches can be told again."""

    def __init__(self, keep: int = 100) -> None:
        import zmq.asyncio

        self.context: Any = zmq.asyncio.Context()
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.url = f"tcp://127.0.0.1:{self.pub.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay_url = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=keep)
        self.number = 0
        self.asked: list[int] = []

    async def publish(self, *events: object, drop: bool = False, raw: bytes | None = None) -> None:
        """Send a batch, or lose it on the way."""
        payload = raw if raw is not None else msgspec.msgpack.encode([0.0, list(events), 0])
        self.kept.append((self.number, payload))
        if not drop:
            await self.pub.send_multipart((b"", self.number.to_bytes(8, "big"), payload))
        self.number += 1

    async def replay(self) -> None:
        """Tell again what is asked for, for ever."""
        while True:
            client, _, start = await self.router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            for number, payload in list(self.kept):
                if number >= self.asked[-1]:
                    head = (client, b"", b"", number.to_bytes(8, "big"))
                    await self.router.send_multipart((*head, payload))
            await self.router.send_multipart((client, b"", b"", END, b""))

    def restart(self) -> None:
        """Be a new engine at the same address."""
        self.number = 0
        self.kept.clear()


@asynccontextmanager
async def listening(
    keep: int = 100, *, replay: bool = True
) -> AsyncIterator[tuple[Publisher, KvEvents, BlockDirectory]]:
    publisher, directory = Publisher(keep), BlockDirectory()
    replay_url = publisher.replay_url if replay else None
    events = KvEvents(publisher.url, replay_url, directory, replica="r")
    answering = asyncio.create_task(publisher.replay())
    events.start()
    try:
        # A subscription takes a moment to arrive; what is published before is heard of nobody.
        async with asyncio.timeout(WAIT_S):
            while not events.totals.batches:
                publisher.restart()
                await publisher.publish(AllBlocksCleared())
                await asyncio.sleep(0.02)
        yield publisher, events, directory
    finally:
        await events.stop()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        publisher.context.destroy(linger=0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 -- what is waited for tells nobody
            await asyncio.sleep(0.01)


def block(number: int, *, parent: int | None = None) -> BlockStored:
    return BlockStored([number], parent, [number] * 4, 4, "GPU")


def test_batches_are_applied_in_order() -> None:
    async def run() -> None:
        async with listening() as (publisher, _, directory):
            await publisher.publish(block(1), block(2, parent=1))
            await publisher.publish(block(3, parent=2))
            await until(lambda: len(directory) == 3)
            await publisher.publish(BlockRemoved([3], "GPU"))
            await until(lambda: len(directory) == 2)
            await publisher.publish(AllBlocksCleared())
            await until(lambda: len(directory) == 0)

    asyncio.run(run())


def test_what_was_lost_on_the_way_is_asked_for() -> None:
    async def run() -> None:
        async with listening() as (publisher, events, directory):
            await publisher.publish(block(1))
            await until(lambda: len(directory) == 1)
            await publisher.publish(block(2, parent=1), drop=True)
            await publisher.publish(BlockRemoved([1], "GPU"), drop=True)
            await publisher.publish(block(3, parent=2))
            await until(lambda: events.feed.sequence.next == publisher.number)
            # The one before is asked for, too: is it the one that was heard?
            assert publisher.asked[-1] == publisher.number - 4
            assert (events.totals.gaps, events.totals.lost) == (1, 0)
            assert len(directory.held_by("r")) == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("keep", "replay"),
    [
        pytest.param(1, True, id="the engine has forgotten it"),
        pytest.param(100, False, id="it cannot be asked"),
    ],
)
def test_what_nobody_can_tell_again_makes_all_before_it_unknown(keep: int, replay: bool) -> None:
    async def run() -> None:
        async with listening(keep, replay=replay) as (publisher, events, directory):
            await publisher.publish(block(1))
            await until(lambda: len(directory) == 1)
            for number in range(2, 5):
                await publisher.publish(block(number), drop=True)
            await publisher.publish(block(9))
            await until(lambda: events.totals.lost == 1)
            await until(lambda: len(directory.held_by("r")) == 1)
            await publisher.publish(block(10, parent=9))
            await until(lambda: len(directory.held_by("r")) == 2)

    asyncio.run(run())


def test_an_engine_that_was_started_anew_holds_nothing() -> None:
    async def run() -> None:
        async with listening() as (publisher, events, directory):
            await publisher.publish(block(1))
            await publisher.publish(block(2))
            await until(lambda: len(directory) == 2)
            before = events.totals.restarts
            publisher.restart()
            await publisher.publish(block(3))
            await until(lambda: len(directory.held_by("r")) == 1)
            assert events.totals.restarts == before + 1

    asyncio.run(run())


def test_a_poller_remembers_prefixes_where_it_is_to_warm_caches_up() -> None:
    async def run() -> None:
        publisher = Publisher()
        poller = Poller(emit=lambda event: None, clock=time.monotonic, rng=Random(1), fetch=refuse)
        poller.add(target_of(publisher, "plain"))
        poller.warm_up = WarmUpConfig(enabled=True)
        poller.add(target_of(publisher, "warmed"))
        poller.add(target_of(publisher, "ranked", ranks=2))
        await poller.start()
        try:
            assert list(poller._warm_ups) == ["warmed"]
            memory = poller._warm_ups["warmed"]._memory
            async with asyncio.timeout(WAIT_S):
                while not len(memory):
                    publisher.restart()
                    await publisher.publish(block(1))
                    await asyncio.sleep(0.02)
            assert poller.directory.held_by("warmed")
            await poller.remove("warmed")
            assert poller._warm_ups == {}
            assert poller.directory.held_by("warmed") == []
        finally:
            await poller.stop()
            publisher.context.destroy(linger=0)

    asyncio.run(run())


def target_of(publisher: Publisher, name: str, ranks: int = 1) -> PollTarget:
    return PollTarget(
        kind="vllm",
        name=name,
        url="http://127.0.0.1:1",
        health_urls=("http://127.0.0.1:1/health",),
        models_url="http://127.0.0.1:1/v1/models",
        kv_events_url=publisher.url,
        kv_events_ranks=ranks,
    )


async def refuse(
    url: str,
    *,
    headers: Sequence[tuple[str, str]] = (),
    timeout_s: float,
    body_bytes_max: int = 0,
) -> FetchResponse:
    raise FetchError(url, "connect", "nobody is there")


def test_frames_that_cannot_be_read_never_end_the_listening() -> None:
    async def run() -> None:
        async with listening() as (publisher, events, directory):
            await publisher.pub.send_multipart((b"only one",))
            await publisher.pub.send_multipart((b"", b"short", b""))
            await publisher.publish(raw=b"\xc1 no msgpack")
            await publisher.publish(raw=msgspec.msgpack.encode({"type": "BlockStored"}))
            await publisher.publish(block(1))
            await until(lambda: len(directory.held_by("r")) == 1)
            assert events.totals.bad >= 4

    asyncio.run(run())


class Flood:
    """A subscriber that has always more already, so that to receive never waits."""

    def __init__(self, payload: bytes) -> None:
        self.payload, self.received = payload, 0

    async def recv_multipart(self) -> tuple[bytes, ...]:
        """The next one."""
        self.received += 1
        return b"", (self.received - 1).to_bytes(8, "big"), self.payload

    def close(self, linger: int) -> None:
        """No more."""


@pytest.mark.parametrize(
    ("payload", "most"),
    [
        pytest.param(msgspec.msgpack.encode([0.0, [], 0]), 40, id="short ones"),
        pytest.param(b"\xc1", 40, id="bad ones"),
        pytest.param(
            msgspec.msgpack.encode([0.0, [BlockStored([*range(9999)], None, [1] * 9999, 1)], 0]),
            1,
            id="long ones",
        ),
    ],
)
def test_however_much_comes_others_have_their_turn(payload: bytes, most: int) -> None:
    async def run() -> None:
        events = KvEvents("tcp://h:1", None, BlockDirectory(), replica="r")
        flood = events._subscriber = Flood(payload)
        listening = asyncio.create_task(events._run())
        for _ in range(100):
            before = flood.received
            await asyncio.sleep(0)
            assert flood.received - before <= most
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(run())


def test_what_is_too_long_counts_as_missing_and_does_not_end_the_listening() -> None:
    async def run() -> None:
        async with listening() as (publisher, events, directory):
            await publisher.publish(raw=bytes(17 * 1024 * 1024))
            await publisher.publish(block(1))
            await until(lambda: len(directory.held_by("r")) == 1)
            assert events.totals.lost == 1

    asyncio.run(run())


def test_views_tell_what_a_full_cache_holds_and_how_often_it_was_emptied() -> None:
    async def run() -> None:
        async with listening() as (publisher, _, directory):
            target = PollTarget(
                kind="vllm",
                name="r",
                url="http://127.0.0.1:1",
                health_urls=(),
                models_url="http://127.0.0.1:1/v1/models",
                kv_events_replay_url=publisher.replay_url,
            )
            cache = KvCache(target, publisher.url, directory)
            cache.start()
            view = ReplicaView(replica="r", observed_s=1.0, running=3)
            try:
                async with asyncio.timeout(WAIT_S):
                    while not directory.held_by("r"):
                        publisher.restart()
                        await publisher.publish(block(1), block(2))
                        await asyncio.sleep(0.02)
                found = cache.complete(view)
                assert (found.running, found.kv_stored_tokens) == (3, None)
                await publisher.publish(BlockRemoved([1], "GPU"))
                await until(lambda: cache.complete(view).kv_stored_tokens == 4)
                cleared = cache.complete(view).kv_cleared_total or 0
                await publisher.publish(AllBlocksCleared())
                await until(lambda: (cache.complete(view).kv_cleared_total or 0) == cleared + 1)
            finally:
                await cache.stop()

    asyncio.run(run())


@pytest.mark.parametrize("url", ["nowhere", "tcp://host", "ipc:///x", "tcp://host:x"])
def test_a_port_is_needed_to_find_the_other_ranks(url: str) -> None:
    target = PollTarget(kind="vllm", name="r", url="", health_urls=(), models_url="")
    with pytest.raises(ConfigError, match="kv_events_url"):
        KvCache(target, url, BlockDirectory())


def test_addresses_are_checked() -> None:
    async def run() -> None:
        events = KvEvents("nowhere", None, BlockDirectory(), replica="r")
        with pytest.raises(ConfigError, match="tcp://host:5557"):
            events.start()
        await events.stop()

    asyncio.run(run())


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_frames_are_decoded_or_refused(frames: list[bytes]) -> None:
    decode_batch(frames)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)


@given(values, st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"]))
def test_any_event_is_decoded_or_refused(value: object, kind: str) -> None:
    event = {"type": kind, "block_hashes": value, "token_ids": value, "block_size": value}
    for body in (value, [0.0, [value], 0], [0.0, [event], 0]):
        payload = msgspec.msgpack.encode(body)
        found = decode_batch((b"", b"\0" * 8, payload))
        assert found is None or found[0] == 0
