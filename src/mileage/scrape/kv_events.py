"""KvEvents: hears the cache events of an engine over ZMQ, and asks again for what is missing."""

from __future__ import annotations

import asyncio
import contextlib
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

__all__ = ["KvEvents", "KvEventsTotals", "decode_batch"]

_log = logging.getLogger(__name__)
_END: Final = (2**64 - 1).to_bytes(8, "big")
_REPLAY_TIMEOUT_S: Final = 5.0
_BACKOFF_S: Final = 1.0
_SUB_HWM: Final = 100_000
_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[KvEvent]
    data_parallel_rank: int | None = None


_decode = msgspec.msgpack.Decoder(_Batch).decode


def decode_batch(frames: Sequence[bytes]) -> tuple[int, list[KvEvent]] | None:
    """Number and events of one message (topic, number as 8 bytes, msgpack); None: it is none."""
    if len(frames) != 3 or len(frames[1]) != 8 or len(frames[2]) > _BATCH_BYTES_MAX:
        return None
    try:
        return int.from_bytes(frames[1], "big"), _decode(frames[2]).events
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None


class KvEventsTotals(msgspec.Struct, kw_only=True):
    """What was heard so far."""

    batches: int = 0
    bad: int = 0
    """Messages that could not be read."""
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
    read counts as a missing one. Nothing that an engine sends ends the listening.

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
        self._zmq = _zmq()
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
        socket.setsockopt(self._zmq.RCVHWM, _SUB_HWM)
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
            except Exception:
                _log.exception("the cache events of %s could not be heard", self._replica)
                await asyncio.sleep(_BACKOFF_S)

    async def _hear(self, frames: Sequence[bytes]) -> None:
        found = decode_batch(frames)
        if found is None:
            self.totals.bad += 1
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
            if not await self._replay(number):
                self.totals.lost += 1
                self.feed.clear()
            self._directory.trusted(self._replica, self._rank)
        if number >= sequence.next:
            self._apply(number, events)

    def _apply(self, number: int, events: list[KvEvent]) -> None:
        self.totals.batches += 1
        self.feed.now_s = self._clock()
        self.feed.apply(events)
        self.feed.sequence.take(number)
        if self._changed is not None:
            self._changed(self.feed)

    async def _replay(self, until: int) -> bool:
        """Ask for all from the next number on; False: some before `until` are not to be had."""
        if self._replay_url is None:
            return False
        socket = self._connect(self._zmq.DEALER, self._replay_url)
        sequence = self.feed.sequence
        try:
            await socket.send_multipart((b"", sequence.next.to_bytes(8, "big")))
            while True:
                frames = await asyncio.wait_for(socket.recv_multipart(), _REPLAY_TIMEOUT_S)
                if len(frames) == 4 and frames[2] == _END:
                    break
                found = decode_batch(frames[1:])
                if found is None:
                    self.totals.bad += 1
                    break
                number, events = found
                if number > sequence.next:
                    break  # the engine has forgotten those before
                if number == sequence.next:
                    self.totals.replayed += 1
                    self._apply(number, events)
        except (TimeoutError, self._zmq.ZMQError) as error:
            _log.warning("%s did not tell its missed cache events: %r", self._replica, error)
        finally:
            with contextlib.suppress(self._zmq.ZMQError):
                socket.close(linger=0)
        return sequence.next >= until


def _zmq() -> Any:
    try:
        import zmq
        import zmq.asyncio
    except ImportError as error:
        expected = "none, or pyzmq beside it (pip install 'mileage[kv_events]')"
        raise ConfigError("engines.kv_events_url", "(set)", expected) from error
    return zmq
