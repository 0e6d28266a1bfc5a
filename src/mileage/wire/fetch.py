"""fetch(): one HTTP/1.1 request on a connection of its own, for the control plane."""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Literal, Protocol, cast

import httptools
import msgspec

from mileage.core.errors import EngineError
from mileage.wire.url import authority, basic_authorization, display_url, origin, target

__all__ = ["Fetch", "FetchError", "FetchFailure", "FetchResponse", "fetch"]

BODY_BYTES_MAX = 4 * 1024 * 1024
HEAD_BYTES_MAX = 64 * 1024
_HEAD_TOO_LARGE = f"header larger than {HEAD_BYTES_MAX} bytes"
_DEFAULT_HEADERS = (("accept", "*/*"), ("accept-encoding", "identity"))
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

FetchFailure = Literal["request", "connect", "timeout", "broken"]
"""request: the URL or a header cannot be sent; connect: no connection (refused, no such host, TLS
refused, no connection in time); timeout: connected, but no whole answer in time; broken: the
connection or the server's HTTP broke, or the answer is too large."""


class FetchError(EngineError):
    """A request got no usable answer; `kind` says at which step it failed."""

    def __init__(self, url: str, kind: FetchFailure, message: str) -> None:
        self.kind: FetchFailure = kind
        super().__init__(display_url(url), message)


class FetchResponse(msgspec.Struct, frozen=True):
    """An answer, received whole. Header names are lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header (give its name in lower case), None where it is absent."""
        return next((value for key, value in self.headers if key == name), None)


class Fetch(Protocol):
    """The shape of `fetch`, for those that get it passed in."""

    async def __call__(
        self,
        url: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> FetchResponse:
        """Get `url`. Raises FetchError."""
        ...


async def fetch(
    url: str,
    *,
    method: Literal["GET", "POST"] = "GET",
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    timeout_s: float,
    body_bytes_max: int = BODY_BYTES_MAX,
    ssl_context: ssl.SSLContext | None = None,
) -> FetchResponse:
    """Send one request and return the whole answer, whatever its status; follows no redirect.

    `timeout_s` bounds all of it. Credentials in the URL are sent as Basic authorization unless
    `headers` has its own. TLS certificates are verified. Raises FetchError, which names the URL
    without its credentials, for everything that goes wrong below HTTP; nothing else escapes.
    """
    try:
        scheme, host, port = origin(url)
        request = _request(url, method, headers, body)
        context = (ssl_context or _default_context()) if scheme == "https" else None
    except (ValueError, ssl.SSLError) as error:
        raise FetchError(url, "request", f"cannot be requested: {error}") from error
    loop = asyncio.get_running_loop()
    exchange = _Exchange(request, body_bytes_max, loop.create_future())
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: exchange, host, port, ssl=context)
            return await exchange.answer
    except TimeoutError as error:
        if exchange.connected:
            message = f"no {'whole ' if exchange.started else ''}answer within {timeout_s:g} s"
            raise FetchError(url, "timeout", message) from error
        raise FetchError(url, "connect", f"no connection within {timeout_s:g} s") from error
    except _BrokenError as error:
        raise FetchError(url, "broken", str(error)) from error
    except OSError as error:
        raise FetchError(url, "connect", _reason(error)) from error
    finally:
        exchange.close()


class _BrokenError(Exception):
    """The connection or the server's HTTP broke after the connection was made."""


class _Exchange(asyncio.Protocol):
    """Sends the request once connected, and resolves `answer` with the response to it."""

    def __init__(
        self, request: bytes, body_bytes_max: int, answer: asyncio.Future[FetchResponse]
    ) -> None:
        self.answer = answer
        self.connected = self.started = False
        self._request, self._body_bytes_max = request, body_bytes_max
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._fed_bytes = self._head_bytes = 0
        self._head_done = self._framed = False
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()

    def close(self) -> None:
        """Drop the connection; harmless when it is gone already."""
        if self._transport is not None:
            self._transport.abort()
        if self.answer.done() and not self.answer.cancelled():
            self.answer.exception()  # seen, also when a timeout won the race against it
        else:
            self.answer.cancel()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.connected = True
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return
        self.started = True
        self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("switched protocols, unasked")
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")  # too late where the answer was whole before it
        if not self._head_done and self._fed_bytes > HEAD_BYTES_MAX:
            self._fail(_HEAD_TOO_LARGE)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_done and not self._framed and exc is None:
            self._finish()  # a body without a length ends where the connection does
        elif exc is not None:
            self._fail(f"connection broke: {_reason(exc)}")
        else:
            where = "in the middle of" if self.started else "without"
            self._fail(f"connection closed {where} an answer")

    # httptools callbacks; they must not raise

    def on_message_begin(self) -> None:
        self._headers, self._head_done, self._framed = [], False, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > HEAD_BYTES_MAX:
            self._fail(_HEAD_TOO_LARGE)
        if self._head_done or self.answer.done():
            return  # a trailer, or too late
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers.append((key, text))
        if key == "content-length" or (
            key == "transfer-encoding" and text.lower().endswith("chunked")
        ):
            self._framed = True

    def on_headers_complete(self) -> None:
        self._head_done = self._parser.get_status_code() >= 200  # 1xx: the answer is yet to come

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._body_bytes_max:
            self._fail(f"answer larger than {self._body_bytes_max} bytes")
        elif not self.answer.done():
            self._body += data

    def on_message_complete(self) -> None:
        if self._head_done:
            self._finish()

    def _finish(self) -> None:
        if not self.answer.done():
            status = self._parser.get_status_code()
            self.answer.set_result(FetchResponse(status, tuple(self._headers), bytes(self._body)))

    def _fail(self, message: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(_BrokenError(message))


def _request(url: str, method: str, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """The request as bytes. Raises ValueError for what would not be one well-formed request."""
    given = {name.lower() for name, _ in headers}
    lines = [("host", authority(url)), ("connection", "close")]
    if "authorization" not in given and (basic := basic_authorization(url)):
        lines.append(("authorization", basic))
    if body or method == "POST":
        lines.append(("content-length", str(len(body))))
    lines += [line for line in _DEFAULT_HEADERS if line[0] not in given]
    lines += headers
    for name, value in lines:
        if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise ValueError(f"bad header {name[:50]!r}")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"{method} {target(url)} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


@functools.cache
def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()  # once: it reads every CA certificate of the system


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return f"host not found ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    return str(error) or type(error).__name__
