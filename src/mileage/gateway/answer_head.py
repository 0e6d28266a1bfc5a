"""Heads of answers: which of the engine's header lines go on to the client."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "JSON_LINES",
    "STREAM_LINES",
    "forwarded_lines",
    "has_length",
    "is_event_stream",
    "retry_after_lines",
]

JSON_LINES = b"content-type: application/json\r\n"
STREAM_LINES = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
"""Proxies on the way must neither store nor collect a stream."""

_FORWARDED = frozenset(
    (b"content-type", b"content-encoding", b"retry-after", b"openai-processing-ms")
)
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))
_OURS = frozenset((b"x-request-id", b"x-accel-buffering"))


def forwarded_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines of the engine's that concern the client; names are lower case."""
    lines = b""
    for name, value in headers:
        if name in _FORWARDED or (name[:2] == b"x-" and not _is_ours(name)):
            lines += b"%b: %b\r\n" % (name, value)
    return lines


def _is_ours(name: bytes) -> bool:
    """What the gateway tells of itself; an engine's rates are those of our account with it."""
    return name in _OURS or name.startswith(b"x-ratelimit-")


def retry_after_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The engine's Retry-After, if it sent one."""
    return b"".join(
        [b"retry-after: %b\r\n" % value for name, value in headers if name == b"retry-after"]
    )


def has_length(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """The answer says where it ends; without, only the end of the connection tells."""
    for name, _ in headers:  # noqa: SIM110 -- any() over a generator takes twice as long
        if name in _LENGTHS:
            return True
    return False


def is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """The answer is a stream of server-sent events."""
    for name, value in headers:
        if name == b"content-type" and value.lower().startswith(b"text/event-stream"):
            return True
    return False
