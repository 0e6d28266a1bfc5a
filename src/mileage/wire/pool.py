"""A pool of connections to one engine: kept alive, bounded, one retry on a stale one."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from mileage.wire.upstream import PooledSink, UpstreamConnection

__all__ = ["UpstreamPool"]

_SWEEP_S = 0.5
_KEEP_ALIVE_S = 4.0
"""An idle connection is closed after this: uvicorn, under vLLM and others, does so after 5 s, and
it is better to be first than to write into a closed connection."""
_log = logging.getLogger(__name__)


class _Connecting:
    """Stands for the connection of a request while that is being made."""

    __slots__ = ("_making", "work")

    def __init__(self, making: set[_Connecting]) -> None:
        self._making = making
        self.work: asyncio.Task[None] | asyncio.Handle | None = None
        """What makes the connection, or tells that none can be had."""

    def pause(self) -> None:
        """Nothing is read yet."""

    def resume(self) -> None:
        """Nothing is read yet."""

    def release(self) -> None:
        """Nothing is left to read."""

    def abort(self) -> None:
        """Do not send the request after all."""
        self._making.discard(self)  # here too: a task that never began to run has no end
        if self.work is not None:
            self.work.cancel()


class UpstreamPool:
    """Connections to the engine at `url` (http://host:port/prefix or https://...).

    `prefix` is the url's path, to be put before each request's own; `authority` is for the Host
    header. `connection` makes one, where it is to be of another kind.
    """

    def __init__(
        self,
        url: str,
        *,
        connections_max: int,
        connect_timeout_s: float,
        response_timeout_s: float,
        tls: ssl.SSLContext | None = None,
        connection: Callable[[UpstreamPool], UpstreamConnection] = UpstreamConnection,
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.prefix = parts.path.rstrip("/").encode()
        self.authority = parts.netloc.rpartition("@")[2].encode()
        self.response_timeout_s = response_timeout_s
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._connections_max = connections_max
        self._connection = connection
        self._connect_timeout_s = connect_timeout_s
        self._idle: dict[UpstreamConnection, float] = {}  # since when; the newest is last
        self._open: set[UpstreamConnection] = set()
        self._connecting: set[_Connecting] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._retired = False

    @property
    def ended(self) -> bool:
        """It is retired, and nothing of it is left."""
        return self._retired and not (self._open or self._connecting)

    def start(self) -> None:
        """Begin to watch deadlines; needs a running loop."""
        self._sweep(asyncio.get_running_loop())

    def stop(self) -> None:
        """Close all connections, and make no more of those being made."""
        if self._timer is not None:
            self._timer.cancel()
        for connecting in tuple(self._connecting):
            connecting.abort()
        for connection in tuple(self._open):
            connection.abort()

    def retire(self) -> None:
        """Close every connection once it is idle: those that are, at once."""
        self._retired = True
        for connection in tuple(self._idle):
            connection.close()
        self._idle.clear()

    def send(self, request: bytes, sink: PooledSink, now_s: float) -> None:
        """Send a whole request on an idle connection, else on a new one.

        The sink's `upstream` is set to what carries the request; a failure comes to the sink, from
        the event loop and never from inside this call.
        """
        idle = self._idle
        while idle:
            connection, _ = idle.popitem()
            if connection.open:
                sink.upstream = connection
                connection.send(request, sink, now_s)
                return
        self.send_fresh(request, sink)

    def send_fresh(self, request: bytes, sink: PooledSink) -> None:
        """Send a whole request on a new connection."""
        connecting = _Connecting(self._connecting)
        sink.upstream = connecting
        loop = asyncio.get_running_loop()
        if len(self._open) + len(self._connecting) >= self._connections_max:
            message = f"all {self._connections_max} connections are in use"
            connecting.work = loop.call_soon(sink.answer_broken, "busy", message)
            return
        self._connecting.add(connecting)
        if self._retired and self._timer is None:
            self._sweep(loop)
        connecting.work = loop.create_task(self._connect(request, sink, connecting))

    async def _connect(self, request: bytes, sink: PooledSink, connecting: _Connecting) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: self._connection(self), self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            sink.answer_broken("connect", f"no connection within {self._connect_timeout_s:g} s")
            return
        except OSError as error:
            sink.answer_broken("connect", f"no connection: {error.strerror or error}")
            return
        except Exception as error:
            # A host name that is none, say: whatever it is, the request must not hang.
            sink.answer_broken("connect", f"no connection: {error or type(error).__name__}")
            return
        finally:
            self._connecting.discard(connecting)
        self._open.add(connection)
        if connection.open:
            sink.upstream = connection
            connection.send(request, sink, time.monotonic())
        else:
            self._open.discard(connection)
            sink.answer_broken("connect", "the connection was closed at once")

    # --- told by the connections --------------------------------------------------------------

    def idle(self, connection: UpstreamConnection) -> None:
        """The connection's answer is complete: it can carry another request."""
        if self._retired:
            connection.close()
        else:
            self._idle[connection] = time.monotonic()

    def lost(self, connection: UpstreamConnection) -> None:
        """The connection is gone."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.ended:
            self._timer = None
            return
        # First: an error below must not end the watch over all other deadlines.
        self._timer = loop.call_later(_SWEEP_S, self._sweep, loop)
        now_s = time.monotonic()
        for connection in [c for c in self._open if c.deadline_s <= now_s]:
            try:
                connection.expire()
            except Exception:
                _log.exception("the end of a request that timed out could not be told")
        for connection in [c for c, s in self._idle.items() if now_s - s > _KEEP_ALIVE_S]:
            del self._idle[connection]
            connection.close()
