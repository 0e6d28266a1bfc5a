"""Connections to an engine: one request at a time on each, its answer handed to a sink."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

import httptools

if TYPE_CHECKING:
    from mileage.wire.pool import UpstreamPool

__all__ = ["MALFORMED", "AnswerSink", "BreakKind", "Carrier", "PooledSink", "UpstreamConnection"]

BreakKind: TypeAlias = Literal["connect", "timeout", "broken", "busy"]
"""busy: the pool is at its limit of connections; the engine was not asked."""
MALFORMED = "malformed answer"
"""What the message of a `broken` answer begins with that is no HTTP/1.1."""

_log = logging.getLogger(__name__)
_HEAD_BYTES_MAX = 65_536
_RELEASED_S = 1.0
"""For the rest of an answer that nobody waits for: the last chunk, which follows at once."""
_FOREVER = float("inf")


class AnswerSink(Protocol):
    """Receives one answer: head, body parts, then end; or broken at any point, and nothing more."""

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The answer's head; header names are lower case."""

    def body_received(self, data: bytes, now_s: float) -> None:
        """All body bytes that came with one read, when more are to come."""

    def answer_ended(self, data: bytes, now_s: float) -> None:
        """The answer is complete; `data` are its last body bytes (maybe none)."""

    def cut(self) -> None:
        """The sink failed inside one of these calls: whoever waits for the answer must not."""

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        """No answer, or the rest of one, will come."""


class Carrier(Protocol):
    """What carries a request: a connection, or one that is being made."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read on."""

    def release(self) -> None:
        """The answer is complete for its sink, which gets nothing more; read the rest of it."""

    def abort(self) -> None:
        """Give the request up; nothing more comes to its sink."""


class PooledSink(AnswerSink, Protocol):
    """A sink that knows what carries its request; the pool sets it."""

    upstream: Carrier | None


class UpstreamConnection(asyncio.Protocol):
    """One connection to an engine."""

    __slots__ = (
        "_body",
        "_ended",
        "_framed",
        "_head_bytes",
        "_headers",
        "_keep_alive",
        "_parser",
        "_paused",
        "_pool",
        "_released",
        "_status",
        "_transport",
        "answered",
        "deadline_s",
        "request",
        "sink",
        "used",
    )

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._status = 0
        self._head_bytes = 0
        self._framed = False  # the answer's length is known before the connection ends
        self._keep_alive = True
        self._ended = False
        self._paused = False
        self._released = False
        self.sink: PooledSink | None = None
        self.request = b""
        """Kept until a byte of its answer comes: it may have to be sent again."""
        self.answered = False
        """A byte of the answer to the present request has come."""
        self.used = False
        """An earlier request was answered on it: the engine may have closed it since."""
        self.deadline_s = _FOREVER

    # --- asked by the pool and the proxy ------------------------------------------------------

    def send(self, request: bytes, sink: PooledSink, now_s: float) -> None:
        """Send a whole request; the connection must be idle."""
        assert self._transport is not None
        self.sink = sink
        self.request = request
        self.answered = False
        self.deadline_s = now_s + self._pool.response_timeout_s
        self._transport.write(request)

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self.deadline_s = _FOREVER
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and self._paused:
            self._paused = False
            self.deadline_s = time.monotonic() + self._pool.response_timeout_s
            self._transport.resume_reading()

    def release(self) -> None:
        """The answer is complete for its sink; read what is left of it, and be idle then."""
        self.sink = None
        self._released = True
        self.resume()
        self.deadline_s = time.monotonic() + _RELEASED_S

    def abort(self) -> None:
        """Give the answer up; the closed connection tells the engine to stop generating."""
        self.sink = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    @property
    def open(self) -> bool:
        """The connection can carry a request."""
        return self._transport is not None and not self._transport.is_closing()

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The engine accepted."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The engine closed, or we did."""
        self._transport = None
        self._pool.lost(self)  # first: at the pool's limit a retry needs the place
        if self.sink is not None and self._status and not self._framed and exc is None:
            self._ended = True
            self._keep_alive = False
            self._deliver(time.monotonic())  # an answer without a length ends with the connection
        elif self.sink is not None:
            self._broken("broken", f"connection lost: {exc}" if exc else "connection closed early")
        del self._parser

    def data_received(self, data: bytes) -> None:
        """Parse a part of the answer."""
        now_s = time.monotonic()
        if self.sink is not None:
            if not self.answered:
                self.answered = True
                self.request = b""  # megabytes, maybe, and the generation may take minutes
            self.deadline_s = now_s + self._pool.response_timeout_s
        elif not self._released:
            self.abort()  # bytes that nobody asked for
            return
        sink = self.sink
        try:
            self._parse(data, now_s)
        except Exception:
            _log.exception("an answer could not be handled")
            self.abort()
            if sink is not None:
                sink.cut()

    def _parse(self, data: bytes, now_s: float) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # an error of the sink's
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._broken("broken", f"{MALFORMED}: {error}")
            return
        if not self._status:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._broken("broken", f"headers above {_HEAD_BYTES_MAX} bytes")
                return
        self._deliver(now_s)

    # --- httptools callbacks ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A status line begins."""
        if self._ended:
            self._keep_alive = False  # a second answer to one request: not to be trusted further
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header (or a trailer, which goes into a list that is no longer used)."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is complete; interim (1xx) answers are skipped."""
        status = self._parser.get_status_code()
        if status < 200 or self._ended:
            return
        headers, self._headers = self._headers, []
        self._framed = status in (204, 304)
        for name, _ in headers:
            if name in (b"content-length", b"transfer-encoding"):
                self._framed = True
        self._status = status
        self._keep_alive = self._parser.should_keep_alive() and self._framed
        if self.sink is not None:
            self.sink.head_received(status, headers)

    def on_body(self, data: bytes) -> None:
        """A part of the body; parts of one read are handed on together."""
        if not self._ended:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The answer is complete, unless it was an interim one."""
        if self._status:
            self._ended = True

    # --- the answer's parts -------------------------------------------------------------------

    def _deliver(self, now_s: float) -> None:
        body: bytes = b""
        if self._body:
            parts, self._body = self._body, []
            body = parts[0] if len(parts) == 1 else b"".join(parts)
        if not self._ended:
            if body and self.sink is not None:
                self.sink.body_received(body, now_s)
            return
        sink, self.sink = self.sink, None
        self._ended = self._released = False
        self._status = self._head_bytes = 0
        self.used = True
        if self._paused:
            self.resume()
        self.deadline_s = _FOREVER
        if self._transport is not None:
            if self._keep_alive:
                self._pool.idle(self)
            else:
                self._transport.close()
        if sink is not None:
            sink.answer_ended(body, now_s)

    def expire(self) -> None:
        """The engine has been silent for too long."""
        self._broken("timeout", f"no answer within {self._pool.response_timeout_s:g} s")

    def _broken(self, kind: BreakKind, message: str) -> None:
        sink, self.sink = self.sink, None
        stale = self.used and not self.answered and kind == "broken"
        if self._transport is not None:
            self._transport.abort()
        if sink is not None:
            if stale:
                # The engine closed the kept-alive connection as we wrote to it: it saw no request.
                self._pool.send_fresh(self.request, sink)
            else:
                sink.answer_broken(kind, message)
