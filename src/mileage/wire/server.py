"""HTTP/1.1 server connections: keep-alive, pipelining answered in order, limits, back-pressure.

One `ServerConnection` per socket hands each request, received whole, to
a handler, one at a time: the next one only after the answer to the one before has been ended. The
handler answers through the connection (`respond`, or `start`/`write`/`end`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from mileage.wire.message import HttpRequest, status_line
from mileage.wire.request_parser import Refused, RequestLimits, RequestParser

if TYPE_CHECKING:
    from mileage.wire.listener import HttpListener

__all__ = ["Handler", "ResponseOwner", "ServerConnection"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_LINGER_S = 2.0
_COPIED_BYTES = 8192
"""Smaller parts are cheaper copied into one buffer than handed to the kernel one by one."""
_FOREVER = float("inf")


class ResponseOwner(Protocol):
    """Whoever is answering a request: told of the client's state."""

    def client_gone(self) -> None:
        """The client closed the connection before the answer was ended."""

    def client_ready(self) -> None:
        """The client, which `slow` said to be behind, has caught up: go on producing."""


Phase: TypeAlias = Literal["head", "body", "serving", "idle", "linger", "closing"]
Handler = Callable[[HttpRequest, "ServerConnection"], None]


class ServerConnection(asyncio.Protocol):
    """One client connection. `owner` is set by the handler while it answers."""

    __slots__ = (
        "_busy",
        "_chunked",
        "_closing",
        "_failure",
        "_head",
        "_held_bytes",
        "_listener",
        "_parser",
        "_queue",
        "_reading",
        "_transport",
        "_unread_bytes",
        "deadline_s",
        "owner",
        "phase",
        "request",
        "slow",
    )

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._parser = RequestParser(listener.limits, self)
        self._transport: asyncio.Transport | None = None
        self._held_bytes = 0  # of bodies: being received, queued and being answered
        self._queue: deque[HttpRequest] = deque()
        self._busy = False  # a request is being answered, or is about to be
        self._closing = False  # nothing more is read
        self._failure: tuple[int, str] | None = None  # answered after those before it
        self._chunked = False
        self._head = b""  # of an answer that has been started, until its first part goes out
        self._reading = True
        self._unread_bytes = 0  # of a slow client, when it was last looked at
        self.request: HttpRequest | None = None
        self.owner: ResponseOwner | None = None
        self.phase: Phase = "head"
        self.slow = False
        """More is written than the client has read: produce no more until it is ready."""
        self.deadline_s = 0.0

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast("asyncio.Transport", transport)
        # A connection that never sends a byte gets the time of a head, not the keep-alive time.
        self._enter("head", self._listener.limits.header_timeout_s)
        if not self._listener.connected(self):
            self.fail(503, f"more than {self._listener.limits.connections_max} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: whoever is answering must stop."""
        self._listener.disconnected(self)
        self._listener.held_bytes -= self._held_bytes
        self._held_bytes = 0
        self._transport = None
        self._queue.clear()
        self._parser.release()
        self.request = None
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.client_gone()

    def pause_writing(self) -> None:
        """The client does not keep up; it has `write_timeout_s` to read on."""
        self.slow = True
        self._unread_bytes = self._transport.get_write_buffer_size() if self._transport else 0
        self.deadline_s = self._listener.now_s + self._listener.limits.write_timeout_s

    def resume_writing(self) -> None:
        """The client caught up."""
        self.slow = False
        limits = self._listener.limits
        seconds = {
            "head": limits.header_timeout_s,
            "body": limits.body_timeout_s,
            "serving": _FOREVER,
            "idle": limits.idle_timeout_s,
            "linger": _LINGER_S,
            "closing": limits.write_timeout_s,
        }
        self._enter(self.phase, seconds[self.phase])
        if self.owner is not None:
            self.owner.client_ready()
        elif self._queue and self.request is None:
            self._serve_soon()

    def data_received(self, data: bytes) -> None:
        """Parse; requests that become complete are handed on."""
        if self._closing:
            return
        if self.phase == "idle":
            self._enter("head", self._listener.limits.header_timeout_s)
        try:
            self._parser.feed(data)
        except Refused as refused:
            self.fail(refused.status, refused.message)

    def use(self, limits: RequestLimits) -> None:
        """Bound the requests that begin from now on."""
        self._parser.limits = limits

    # --- told by the parser -------------------------------------------------------------------

    def head_received(self) -> None:
        """A head is complete: its body may come."""
        if not self._busy:
            self._enter("body", self._listener.limits.body_timeout_s)
            self._send_continue()

    def body_held(self, size: int) -> None:
        """Count body bytes that are held. Raises Refused where all connections hold too much."""
        self._held_bytes += size
        listener = self._listener
        listener.held_bytes += size
        if listener.held_bytes > listener.limits.buffer_bytes_max:
            raise Refused(503, "too many request bodies are held at once")

    def request_received(self, request: HttpRequest) -> None:
        """A request is complete: serve it, or queue it behind the one being answered.

        Also behind answers that the client has yet to read: one that only sends would fill the
        memory with them.
        """
        if self._busy or self.slow:
            self._busy = True
            self._enqueue(request)
        else:
            self._serve(request)

    def _send_continue(self) -> None:
        partial = self._parser.partial
        if self._parser.want_continue and self._transport is not None and partial is not None:
            self._parser.want_continue = False
            if partial.version == "1.1":
                self._transport.write(_CONTINUE)

    # --- one request after the other ----------------------------------------------------------

    def _serve(self, request: HttpRequest) -> None:
        self._busy = True
        self.request = request
        self._enter("serving", _FOREVER)
        self._listener.handler(request, self)

    def _serve_soon(self) -> None:
        # Through the loop: a long pipeline must neither recurse nor starve other connections.
        asyncio.get_running_loop().call_soon(self._serve_if_open, self._queue.popleft())

    def _serve_if_open(self, request: HttpRequest) -> None:
        if self._transport is not None:
            self._serve(request)

    def _enqueue(self, request: HttpRequest) -> None:
        limits = self._listener.limits
        if len(self._queue) < limits.pipeline_max:
            self._queue.append(request)
            if self.slow or self._held_bytes > limits.body_bytes_max:
                self._pause_reading()
            return
        # Those queued are answered; the client sees the close and sends the rest again.
        self._closing = True
        if self.slow:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _next(self) -> None:
        """The answer is ended: go on with the next request, or wait for one."""
        self.owner = None
        request, self.request = self.request, None
        transport = self._transport
        if transport is None or request is None:
            return
        self._held_bytes -= len(request.body)
        self._listener.held_bytes -= len(request.body)
        if not request.keep_alive or (self._listener.draining and not self._queue):
            self._close()
        elif self._queue:
            if not self.slow:
                self._serve_soon()
        elif self._failure is not None:
            self._busy = False
            self.fail(*self._failure)
        elif self._closing:
            self._close()
        else:
            self._busy = False
            if not self._reading:
                self._reading = True
                transport.resume_reading()
            if self._parser.partial is None:
                self._enter("idle", self._listener.limits.idle_timeout_s)
            else:
                self._enter("body", self._listener.limits.body_timeout_s)
                self._send_continue()

    # --- answers ------------------------------------------------------------------------------

    def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Answer whole. `head`: header lines, each with its CRLF, without length and connection."""
        transport, request = self._transport, self.request
        if transport is None or request is None:
            return
        if self._listener.draining:
            request.keep_alive = False
        transport.write(
            b"%b%b%b%b%b\r\n%b"
            % (
                status_line(status),
                self._listener.date,
                head,
                b"" if status == 204 else b"content-length: %d\r\n" % len(body),
                _connection_line(request),
                b"" if request.method == b"HEAD" else body,
            )
        )
        self._next()

    def start(self, status: int, head: bytes) -> None:
        """Begin an answer of unknown length; its head goes out with the first `write` or `end`."""
        request = self.request
        if request is None:
            return
        if self._listener.draining:
            request.keep_alive = False
        self._chunked = request.version == "1.1"
        if not self._chunked:
            request.keep_alive = False  # HTTP/1.0: the close is the end
        self._head = b"%b%b%b%b%b\r\n" % (
            status_line(status),
            self._listener.date,
            head,
            b"transfer-encoding: chunked\r\n" if self._chunked else b"",
            _connection_line(request),
        )

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        if self._transport is not None and data:
            if self._chunked:
                data = b"%b%x\r\n%b\r\n" % (self._head, len(data), data)
            elif self._head:
                data = self._head + data
            self._head = b""
            self._transport.write(data)

    def end(self, data: bytes = b"") -> None:
        """Send the last part of the answer, if any, and end it."""
        if self._transport is not None:
            if self._chunked:
                if len(data) < _COPIED_BYTES:
                    last = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
                    self._transport.write(self._head + last + _LAST_CHUNK)
                else:
                    size = b"%b%x\r\n" % (self._head, len(data))
                    self._transport.writelines((size, data, b"\r\n" + _LAST_CHUNK))
            elif data or self._head:
                self._transport.write(self._head + data)
            self._head = b""
            self._next()

    def fail(self, status: int, message: str) -> None:
        """Refuse what is being received and close, after the answers that are due before."""
        transport = self._transport
        if transport is None:
            return
        self._closing = True
        if self._busy:
            self._failure = (status, message)
            return
        body = self._listener.error_body(status, message)
        transport.write(
            b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n%b"
            b"connection: close\r\n\r\n%b"
            % (
                status_line(status),
                self._listener.date,
                len(body),
                b"retry-after: 1\r\n" if status == 503 else b"",
                body,
            )
        )
        self._listener.refused(status)
        if transport.can_write_eof():
            # Closing with unread data in the socket resets it, and the client loses the answer.
            transport.write_eof()
            self._enter("linger", _LINGER_S)
        else:
            transport.close()

    # --- life ---------------------------------------------------------------------------------

    def expire(self) -> None:
        """The deadline of the present phase has passed."""
        if self._transport is None:
            return
        if self.slow and self._transport.get_write_buffer_size() < self._unread_bytes:
            # It reads, if slowly: only one that reads nothing is cut off.
            self._unread_bytes = self._transport.get_write_buffer_size()
            self.deadline_s = self._listener.now_s + self._listener.limits.write_timeout_s
        elif self.slow:
            self._transport.abort()
        elif self.phase in ("head", "body") and not self._closing:
            self.fail(408, f"the request's {self.phase} took too long")
        elif self.phase == "idle":
            self._close()
        else:
            self._transport.abort()

    def release_body(self) -> None:
        """The present request's body is not needed any more."""
        request = self.request
        if request is not None and request.body:
            self._held_bytes -= len(request.body)
            self._listener.held_bytes -= len(request.body)
            request.body = b""

    def abort(self) -> None:
        """Cut the connection: the answer cannot be completed."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_idle(self) -> None:
        """Close a kept-alive connection that has nothing to answer."""
        if self.phase == "idle":
            self._close()

    def _close(self) -> None:
        self._closing = True
        self._enter("closing", self._listener.limits.write_timeout_s)
        if self._transport is not None:
            self._transport.close()

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase = phase
        if not self.slow:
            self.deadline_s = self._listener.now_s + seconds


def _connection_line(request: HttpRequest) -> bytes:
    """What the answer says of its connection: nothing where the version's default holds."""
    if not request.keep_alive:
        return b"connection: close\r\n"
    return b"" if request.version == "1.1" else b"connection: keep-alive\r\n"
