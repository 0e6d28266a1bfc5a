"""Opens http, https and file URLs, from a byte on, with the certificates and proxy that are set."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
import urllib.error
import urllib.request
from typing import Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

__all__ = ["ByteSource", "OpenUrl", "SourceError", "WebSettings", "WebSource", "redact"]

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_SCHEMES = frozenset({"http", "https", "file"})
USER_AGENT = "mileage (https://pypi.org/project/mileage)"


class SourceError(Exception):
    """A URL cannot be read; `retryable` where another try may help."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)


class ByteSource(Protocol):
    """An open answer. `start` is the byte that it begins at: 0 where the server ignored a range."""

    start: int
    content_type: str
    url: str
    """After redirects."""

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, none at the end. Raises SourceError."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class OpenUrl(Protocol):
    """Opens a URL; `accept` as in HTTP."""

    def __call__(self, url: str, *, start: int = 0, accept: str = "*/*") -> ByteSource:
        """Answer from byte `start` on, or from 0. Raises SourceError."""
        ...


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach servers. Proxies of the environment (HTTPS_PROXY, NO_PROXY) always count."""

    ca_file: str | None = None
    proxy: str | None = None
    timeout_s: float = 20.0
    """To connect, and for each read."""


class _Answer:
    """A ByteSource over urllib's response."""

    def __init__(self, response: http.client.HTTPResponse, start: int) -> None:
        self._response, self.start = response, start
        self.content_type = response.headers.get_content_type()
        self.url = response.geturl()

    def read(self, count: int) -> bytes:
        try:
            data = self._response.read(count)
        except (OSError, http.client.HTTPException) as error:
            raise SourceError(f"the connection broke: {_reason(error)}", retryable=True) from error
        # Read piece by piece, an answer that is cut off looks like its end.
        if count and not data and (left := getattr(self._response, "length", None)):
            message = f"the connection broke: {left} bytes of the answer are missing"
            raise SourceError(message, retryable=True)
        return data

    def close(self) -> None:
        self._response.close()


class WebSource:
    """The OpenUrl of real life."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            message = f"certificate file {settings.ca_file}: {_reason(error)}"
            raise SourceError(message, retryable=False) from error
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if settings.proxy:
            proxies = {"http": settings.proxy, "https": settings.proxy}
            handlers.append(urllib.request.ProxyHandler(proxies))
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self, url: str, *, start: int = 0, accept: str = "*/*") -> ByteSource:
        """Open `url`; credentials in it go to its own host only, as HTTP Basic."""
        try:
            bare, authorization = _split_credentials(url)
            scheme = urlsplit(bare).scheme
        except ValueError as error:
            raise SourceError(f"is no URL: {error}", retryable=False) from error
        if scheme not in _SCHEMES:
            raise SourceError("is no http, https or file URL", retryable=False)
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            bare,
            headers={"Accept": accept, "User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        )
        if start:
            request.add_header("Range", f"bytes={start}-")
        if authorization:
            request.add_unredirected_header("Authorization", authorization)
        try:
            response = self._opener.open(request, timeout=self._settings.timeout_s)
        except urllib.error.HTTPError as error:
            error.close()
            retryable = error.code >= 500 or error.code in (408, 429)
            reason = " ".join(str(error.reason).split())
            raise SourceError(f"HTTP {error.code} {reason}", retryable=retryable) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SourceError(_reason(error), retryable=_is_retryable(error)) from error
        return _Answer(response, _start(response, start))


def _start(response: http.client.HTTPResponse, asked: int) -> int:
    """Where the answer begins; a server that ignores ranges sends it all."""
    if not asked or response.status != 206:
        return 0
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != asked:
        response.close()
        raise SourceError("answered with another range than was asked for", retryable=False)
    return asked


def _split_credentials(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = userinfo.partition(":")
    token = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {token}"


def redact(url: str) -> str:
    """The URL without user and password, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a malformed URL)"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _is_retryable(error: BaseException) -> bool:
    """Broken connections and timeouts pass; an unknown host or a bad certificate does not."""
    inner = getattr(error, "reason", error)
    return isinstance(inner, ConnectionError | TimeoutError | http.client.HTTPException)
