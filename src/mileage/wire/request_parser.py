"""Requests from bytes: an incremental HTTP/1.1 request parser that enforces limits.

llhttp (through httptools) does the grammar: it refuses conflicting or repeated Content-Length,
Content-Length beside Transfer-Encoding, bare LF, folded and malformed headers. No I/O here.
"""

from __future__ import annotations

import time
from typing import Protocol

import httptools

from mileage.wire.message import HttpRequest

__all__ = ["Refused", "RequestLimits", "RequestParser"]

_UPGRADE_HEADERS = frozenset((b"upgrade", b"connection", b"http2-settings"))


class RequestLimits(Protocol):
    """What bounds one request."""

    @property
    def headers_max(self) -> int: ...
    @property
    def header_bytes_max(self) -> int: ...
    @property
    def body_bytes_max(self) -> int: ...


class Refused(Exception):  # noqa: N818 -- not an error of ours but an answer to the client
    """What is being received is not a request that is served: answer `status` and close."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


class Receiver(Protocol):
    """What the parser tells its connection."""

    def head_received(self) -> None:
        """A head is complete and in order; its body may follow."""

    def body_held(self, size: int) -> None:
        """`size` more bytes of a body are held. May raise Refused."""

    def request_received(self, request: HttpRequest) -> None:
        """A request is complete."""


class RequestParser:
    """Feeds requests to its receiver as they become complete; raises Refused."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_head_bytes",
        "_in_head",
        "_limits",
        "_parser",
        "_receiver",
        "_upgrade",
        "limits",
        "partial",
        "want_continue",
    )

    def __init__(self, limits: RequestLimits, receiver: Receiver) -> None:
        self.limits = self._limits = limits
        """Of the requests that begin from now on, and of the one that is being received."""
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0
        self._in_head = False
        self._upgrade: HttpRequest | None = None  # head of a request that offers an upgrade
        self.partial: HttpRequest | None = None
        """The request that is being received, None between requests."""
        self.want_continue = False
        """The client waits for `100 Continue` before it sends the body."""

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection. Raises Refused; nothing may be fed after that."""
        rest = memoryview(data)
        while (end := self._feed(rest)) is not None:
            # Not in the handler of the exception, which would hide what a callback raises; and
            # a loop over views, because a pipeline may have an offer in each of its requests.
            self._feed(memoryview(self._declined_upgrade()))
            rest = rest[end:]

    def _feed(self, data: memoryview) -> int | None:
        """Parse; where that stops at a request that offers an upgrade, return how far it came."""
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return int(upgrade.args[0])
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, Refused):
                raise cause from None
            raise
        except httptools.HttpParserError as error:
            raise Refused(400, f"malformed HTTP: {error}") from None
        if self._in_head and self._head_bytes > self._limits.header_bytes_max:
            raise self._head_too_large()
        return None

    def release(self) -> None:
        """Drop what refers back to the connection, so that both are freed without the collector."""
        del self._parser, self._receiver

    def on_message_begin(self) -> None:
        """A request line begins."""
        self._in_head = True
        self._limits = self.limits
        self.partial = HttpRequest()

    def on_url(self, url: bytes) -> None:
        """(A part of) the request target."""
        self.partial.target += url  # type: ignore[union-attr]

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers after a chunked body come here too and are dropped."""
        if not self._in_head:
            return
        headers = self.partial.headers  # type: ignore[union-attr]
        headers.append((name.lower(), value))
        if len(headers) > self._limits.headers_max:
            raise Refused(431, f"more than {self._limits.headers_max} headers")

    def on_headers_complete(self) -> None:
        """The head is complete: check it before any body is accepted."""
        request = self.partial
        assert request is not None
        self._in_head = False
        if self._head_bytes > self._limits.header_bytes_max:
            # What was fed holds more than this head; look only where it may be too large.
            size = sum(len(name) + len(value) + 4 for name, value in request.headers)
            if size + len(request.target) > self._limits.header_bytes_max:
                raise self._head_too_large()
        parser = self._parser
        request.method = parser.get_method()
        request.version = parser.get_http_version()
        request.keep_alive = parser.should_keep_alive()
        hosts = 0
        for name, value in request.headers:
            if name == b"content-length":
                self._check_body(int(value))
            elif name == b"host":
                hosts += 1
            elif name == b"expect":
                self._expect(value)
        if hosts != 1 and request.version == "1.1":
            raise Refused(400, "exactly one Host header is required")
        self._receiver.head_received()

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        size = len(data)
        self._body.append(data)
        self._body_bytes += size
        self.want_continue = False
        self._check_body(self._body_bytes)
        self._receiver.body_held(size)

    def on_message_complete(self) -> None:
        """The request is received whole."""
        request = self.partial
        assert request is not None
        self.partial = None
        self._head_bytes = 0
        self.want_continue = False
        if self._parser.should_upgrade():
            self._upgrade = request  # llhttp stops before its body
            return
        body = self._body
        if body:
            request.body = body[0] if len(body) == 1 else b"".join(body)
            self._body = []
            self._body_bytes = 0
        request.received_s = time.monotonic()
        self._receiver.request_received(request)

    def _check_body(self, size: int) -> None:
        limit = self._limits.body_bytes_max
        if size > limit:
            raise Refused(413, f"body above {limit} bytes")

    def _expect(self, value: bytes) -> None:
        if value.lower() != b"100-continue":
            raise Refused(417, "only 'Expect: 100-continue' is supported")
        self.want_continue = True

    def _head_too_large(self) -> Refused:
        return Refused(431, f"headers above {self._limits.header_bytes_max} bytes")

    def _declined_upgrade(self) -> bytes:
        """Go on in HTTP/1.1 after an offer to upgrade (h2c, say), as a server may.

        llhttp stops at such a request, before its body. A new parser is to be fed the same head
        without the offer, which this returns, then what followed.
        """
        request, self._upgrade = self._upgrade, None
        if request is None or request.method == b"CONNECT":
            raise Refused(405, "CONNECT is not supported")
        self._parser = httptools.HttpRequestParser(self)
        version = request.version.encode()
        head = [request.method, b" ", request.target, b" HTTP/", version, b"\r\n"]
        for name, value in request.headers:
            if name not in _UPGRADE_HEADERS:
                head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n")
        return b"".join(head)
