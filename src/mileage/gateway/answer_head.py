"""Heads of answers: which of the engine's header lines go on to the client."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["JSON_LINES", "STREAM_LINES", "forwarded_lines", "has_length", "retry_after_lines"]

JSON_LINES = b"content-type: application/json\r\n"
STREAM_LINES = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
"""Proxies on the way must neither store nor collect a stream."""

_FORWARDED = frozenset(
    (b"content-type", b"content-encoding", b"retry-after", b"openai-processing-ms")
)
_OURS = frozenset((b"x-request-id", b"x-accel-buffering"))


def forwarded_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines of the engine's that concern the client; names are lower case."""
    return b"".join(
        [
            b"%b: %b\r\n" % (name, value)
            for name, value in headers
            if name in _FORWARDED or (name.startswith(b"x-") and not _is_ours(name))
        ]
    )


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
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
