"""LoadConnection: the gateway's connection to an engine, which also tells when it was used."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, cast

from mileage.wire.upstream import PooledSink, UpstreamConnection

if TYPE_CHECKING:
    from mileage.wire.pool import UpstreamPool

__all__ = ["LoadConnection", "TimedSink"]


class TimedSink(PooledSink, Protocol):
    """A sink that wants to know when its request left."""

    def request_sent(self, now_s: float, connected_s: float | None) -> None:
        """The kernel has the whole request; `connected_s` is None on a connection used before."""


class LoadConnection(UpstreamConnection):
    """One connection to a target; its sinks are TimedSinks."""

    __slots__ = ("_blocked", "_made_s", "_unsent")

    def __init__(self, pool: UpstreamPool) -> None:
        super().__init__(pool)
        self._made_s = 0.0
        self._blocked = False
        self._unsent: TimedSink | None = None

    @property
    def heard_s(self) -> float | None:
        """When a byte of the present answer came last; None where none has. Load is read as it
        comes, so that the deadline tells."""
        return self.deadline_s - self._pool.response_timeout_s if self.answered else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The target accepted."""
        super().connection_made(transport)
        self._made_s = time.monotonic()
        # So that the transport tells of every byte that the kernel did not take at once.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=0)

    def send(self, request: bytes, sink: PooledSink, now_s: float) -> None:
        """Send a whole request; the connection must be idle."""
        super().send(request, sink, now_s)
        if self._blocked:
            self._unsent = cast("TimedSink", sink)
        else:
            self._sent(cast("TimedSink", sink))

    def pause_writing(self) -> None:
        """The kernel took a part of the request only."""
        self._blocked = True

    def resume_writing(self) -> None:
        """The kernel has the rest of it."""
        self._blocked = False
        sink, self._unsent = self._unsent, None
        if sink is not None and self.sink is sink:
            self._sent(sink)

    def _sent(self, sink: TimedSink) -> None:
        sink.request_sent(time.monotonic(), None if self.used else self._made_s)
