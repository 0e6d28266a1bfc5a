"""The listening side: its connections, their limits and deadlines, draining."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from mileage.wire.server import Handler, ServerConnection

__all__ = ["HttpListener", "Limits"]

_SWEEP_S = 0.5
"""Deadlines are checked this often: one pass over all connections, not a timer for each."""
_TLS_SHUTDOWN_S = 5.0
"""A client that does not answer the end of a TLS session is cut off."""
_log = logging.getLogger(__name__)


class Limits(Protocol):
    """What bounds a connection; see gateway.config.ServerConfig."""

    @property
    def connections_max(self) -> int: ...
    @property
    def headers_max(self) -> int: ...
    @property
    def header_bytes_max(self) -> int: ...
    @property
    def body_bytes_max(self) -> int: ...
    @property
    def buffer_bytes_max(self) -> int: ...
    @property
    def pipeline_max(self) -> int: ...
    @property
    def header_timeout_s(self) -> float: ...
    @property
    def body_timeout_s(self) -> float: ...
    @property
    def write_timeout_s(self) -> float: ...
    @property
    def idle_timeout_s(self) -> float: ...


class HttpListener:
    """Serves HTTP/1.1 on a bound socket; `handler` gets each request.

    `error_body(status, message)` is the body of an answer to what never became a request;
    `refused(status)` is told of each such answer. `now_s` is the monotonic time, as of the last
    sweep: exact enough for deadlines, and free on the path of a request.
    """

    def __init__(
        self,
        limits: Limits,
        handler: Handler,
        *,
        error_body: Callable[[int, str], bytes],
        refused: Callable[[int], None] = lambda status: None,
    ) -> None:
        self.limits = limits
        self.handler = handler
        self.error_body = error_body
        self.refused = refused
        self.connections: set[ServerConnection] = set()
        self.held_bytes = 0
        self.draining = False
        self.now_s = time.monotonic()
        self.date = b""
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed: asyncio.Event | None = None

    async def start(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on `sock`, which is bound; TLS where a context is given."""
        loop = asyncio.get_running_loop()
        self._sweep(loop)
        self._server = await loop.create_server(
            lambda: ServerConnection(self),
            sock=sock,
            ssl=tls,
            backlog=4096,
            # Before it has ended there is no connection that the sweep could see.
            ssl_handshake_timeout=self.limits.header_timeout_s if tls else None,
            ssl_shutdown_timeout=_TLS_SHUTDOWN_S if tls else None,
        )

    def use(self, limits: Limits) -> None:
        """Bound by these limits what begins from now on: connections, requests and waits."""
        self.limits = limits
        for connection in self.connections:
            connection.use(limits)

    def drain(self) -> None:
        """Answer what is in flight and close each connection after its answer."""
        self.draining = True
        for connection in tuple(self.connections):
            connection.close_if_idle()

    async def wait_closed(self) -> None:
        """Wait until no connection is open."""
        self._closed = asyncio.Event()
        if self.connections:
            await self._closed.wait()

    async def stop(self) -> None:
        """Stop accepting and cut what is still open."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def connected(self, connection: ServerConnection) -> bool:
        """Count a new connection; False where it is one too many."""
        self.connections.add(connection)
        return len(self.connections) <= self.limits.connections_max

    def disconnected(self, connection: ServerConnection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        if self._closed is not None and not self.connections:
            self._closed.set()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        # First of all: whatever happens in one sweep, there is a next one.
        self._timer = loop.call_later(_SWEEP_S, self._sweep, loop)
        self.now_s = now_s = time.monotonic()
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        expired = [c for c in self.connections if c.deadline_s <= now_s]
        for connection in expired:
            try:
                connection.expire()
            except Exception:
                _log.exception("a connection that is past its deadline could not be closed")
                connection.abort()
