"""KvEvents: hears the cache events of an engine over ZMQ, and asks again for what is missing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.feed import KvEvent, KvFeed
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.wire.url import display_url

if TYPE_CHECKING:
    import zmq.asyncio

__all__ = ["KvEvents", "KvEventsTotals", "decode_batch", "import_zmq"]

_log = logging.getLogger(__name__)
_END: Final = (2**64 - 1).to_bytes(8, "big")
_REPLAY_TIMEOUT_S: Final = 5.0
_BACKOFF_S: Final = 1.0
_MESSAGES_MAX: Final = 1000
"""That wait here. More wait in the engine, and what it lets fall is asked for again."""
_HEARTBEAT_S: Final = 10.0
"""A host that is gone without a word is found out by that, and connected to again."""
_SAY_AGAIN_S: Final = 600.0
_REPLAY_MAX_S: Final = 60.0
_BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""ZMQ itself is not told: it would never connect again to who sends more."""
_NUMBER_MAX: Final = 2**63 - 1
"""Engines send -1, say, to mean none."""
_TURN_BLOCKS: Final = 256
"""So many are dealt with, in a millisecond or two, before others have their turn."""
_MESSAGE_BLOCKS: Final = 8
"""A message, also a bad one, takes about as long as so many."""


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[KvEvent]
    data_parallel_rank: int | None = None


_decode = msgspec.msgpack.Decoder(_Batch).decode


def decode_batch(frames: Sequence[bytes]) -> tuple[int, list[KvEvent]] | None:
    """Number and events of one message (topic, number as 8 bytes, msgpack); None: it is none."""
    if len(frames) != 3 or len(frames[1]) != 8 or len(frames[2]) > _BATCH_BYTES_MAX:
        return None
    number = int.from_bytes(frames[1], "big")
    if number > _NUMBER_MAX:
        return None
    try:
        return number, _decode(frames[2]).events
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None


class KvEventsTotals(msgspec.Struct, kw_only=True):
    """What was heard so far."""

    batches: int = 0
    bad: int = 0
    """Messages that could not be read, or not be applied."""
    gaps: int = 0
    replayed: int = 0
    """Batches that were told again when asked for."""
    lost: int = 0
    """Gaps of which the engine had not all any more."""
    restarts: int = 0


class KvEvents:
    """Keeps a directory up to date with one rank of an engine.

    `url` is the engine's PUB socket (`--kv-events-config` with publisher zmq: endpoint), and
    `replay_url` its ROUTER (replay_endpoint), None where it has none. ZMQ connects again by itself.
    Where a number is missing, the rank is suspect until the engine has told the rest again; what it
    cannot tell any more makes us forget what it had, and go on from there. A lower number comes
    from an engine that was started anew: it holds nothing of what it had. A message that cannot be
    read counts as a missing one; after one that cannot be applied nothing is known any more.
    Nothing that an engine sends ends the listening, and however much it is, others have their turn.
    What is wrong is in `totals`, and each kind of it in the log, once in ten minutes.

    `changed` is called after each batch, in the event loop. Raises ConfigError where pyzmq is not
    installed, or an address is none.
    """

    def __init__(
        self,
        url: str,
        replay_url: str | None,
        directory: BlockDirectory,
        *,
        replica: str,
        rank: int = 0,
        topic: str = "",
        changed: Callable[[KvFeed], None] | None = None,
        memory: HotPrefixes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.feed = KvFeed(directory, replica, rank, memory)
        self._clock = clock
        self.totals = KvEventsTotals()
        self._directory, self._replica, self._rank = directory, replica, rank
        self._url, self._replay_url, self._topic = url, replay_url, topic
        self._changed = changed
        self._since_turn = 0
        self._said_s: dict[str, float] = {}
        self._last = 0
        """The hash of the batch that was applied last."""
        self._zmq = import_zmq()
        self._context: zmq.asyncio.Context | None = None
        self._subscriber: Any = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in a running event loop."""
        self._context = self._zmq.asyncio.Context()
        self._subscriber = self._connect(self._zmq.SUB, self._url)
        self._subscriber.setsockopt(self._zmq.SUBSCRIBE, self._topic.encode())
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kv-events")

    async def stop(self) -> None:
        """End; the directory keeps what it has."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._context is not None:
            if self._subscriber is not None:
                self._subscriber.close(linger=0)
            self._context.term()
            self._context = self._subscriber = None

    def _connect(self, kind: int, url: str) -> Any:
        assert self._context is not None
        socket = self._context.socket(kind)
        socket.setsockopt(self._zmq.RCVHWM, _MESSAGES_MAX)
        socket.setsockopt(self._zmq.HEARTBEAT_IVL, int(1000 * _HEARTBEAT_S))
        socket.setsockopt(self._zmq.LINGER, 0)
        try:
            socket.connect(url)
        except self._zmq.ZMQError as error:
            socket.close(linger=0)
            expected = "an address of ZMQ, such as tcp://host:5557"
            raise ConfigError("engines.kv_events_url", display_url(url), expected) from error
        return socket

    async def _run(self) -> None:
        while True:
            try:
                await self._hear(await self._subscriber.recv_multipart())
                await self._give_way(_MESSAGE_BLOCKS)
            except Exception as error:
                self._say(f"could not be heard: {error!r}")
                await asyncio.sleep(_BACKOFF_S)

    def _say(self, what: str) -> None:
        """Log it, and not again for some time: an engine may do the same at each step."""
        kind, now_s = what.partition(":")[0], time.monotonic()
        if now_s - self._said_s.get(kind, float("-inf")) >= _SAY_AGAIN_S:
            self._said_s[kind] = now_s
            _log.warning("cache events of %s (%s) %s", self._replica, display_url(self._url), what)

    async def _hear(self, frames: Sequence[bytes]) -> None:
        found = decode_batch(frames)
        if found is None:
            self._bad()
            return
        number, events = found
        sequence = self.feed.sequence
        verdict = sequence.see(number)
        if verdict == "restart":
            self.totals.restarts += 1
            self.feed.clear()
            sequence.restart()
            verdict = sequence.see(number)
        if verdict == "gap":
            self.totals.gaps += 1
            self._directory.suspect(self._replica, self._rank)
            try:
                if not await self._replay(number):
                    self._say("are missing and not told again: what it had before is not known")
                    self.totals.lost += 1
                    self.feed.clear()
            finally:
                self._directory.trusted(self._replica, self._rank)
        if number >= sequence.next:
            await self._apply(number, events, frames[-1])

    def _bad(self) -> None:
        self.totals.bad += 1
        self._say("cannot be read: expected msgpack as vLLM 0.32 writes it, up to 16 MiB")

    async def _give_way(self, blocks: int) -> None:
        """To receive what is there already lets nobody else run, nor does an event of many."""
        self._since_turn += blocks
        if self._since_turn >= _TURN_BLOCKS:
            self._since_turn = 0
            await asyncio.sleep(0)

    async def _apply(self, number: int, events: list[KvEvent], payload: bytes) -> None:
        self.totals.batches += 1
        self.feed.now_s = self._clock()
        try:
            for blocks in self.feed.steps(events):
                await self._give_way(blocks)
        except Exception as error:
            self._say(f"could not be applied: {error!r}")
            self.totals.bad += 1
            self.feed.clear()
        if self.feed.forgotten_total:
            self._say("are of more blocks than are remembered: the oldest are forgotten")
        self.feed.sequence.take(number)
        self._last = hash(payload)
        if self._changed is not None:
            self._changed(self.feed)

    async def _replay(self, until: int) -> bool:
        """Ask for all from the next number on; False: some before `until` are not to be had.

        The one before the next is asked for, too: where it is another one than was heard, these
        are the numbers of a new engine, which has got further than the old one had.
        `until` has been heard, and so will be what comes behind it: if that were applied from here,
        its own message would look like that of a new engine.
        """
        if self._replay_url is None:
            return False
        sequence = self.feed.sequence
        socket = None
        try:
            socket = self._connect(self._zmq.DEALER, self._replay_url)
            await socket.send_multipart((b"", max(0, sequence.next - 1).to_bytes(8, "big")))
            async with asyncio.timeout(_REPLAY_MAX_S):
                while sequence.next < until:
                    await self._give_way(_MESSAGE_BLOCKS)
                    frames = await asyncio.wait_for(socket.recv_multipart(), _REPLAY_TIMEOUT_S)
                    if len(frames) == 4 and frames[2] == _END:
                        break
                    found = decode_batch(frames[1:])
                    if found is None:
                        self._bad()
                        break
                    number, events = found
                    if number > sequence.next:
                        break  # the engine has forgotten those before
                    if number == sequence.next - 1 and hash(frames[-1]) != self._last:
                        self.totals.restarts += 1
                        break
                    if number == sequence.next:
                        self.totals.replayed += 1
                        await self._apply(number, events, frames[-1])
        except (TimeoutError, ConfigError, self._zmq.ZMQError) as error:
            self._say(f"were asked for again ({display_url(self._replay_url)}) in vain: {error!r}")
        finally:
            if socket is not None:
                socket.close(linger=0)
        return sequence.next >= until


def import_zmq() -> Any:
    """The package pyzmq. Raises ConfigError where it is not installed."""
    try:
        import zmq
        import zmq.asyncio
    except ImportError as error:
        expected = "none, or pyzmq beside it (pip install 'mileage[kv_events]')"
        raise ConfigError("engines.kv_events_url", "(set)", expected) from error
    return zmq
