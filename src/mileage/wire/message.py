"""HTTP/1.1 messages: a parsed request, status lines and heads as bytes."""

from __future__ import annotations

from http import HTTPStatus

__all__ = ["HttpRequest", "status_line"]

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


def status_line(status: int) -> bytes:
    """The status line of a response, with its CRLF."""
    line = _STATUS_LINES.get(status)
    return line if line is not None else f"HTTP/1.1 {status} \r\n".encode()


class HttpRequest:
    """One request, received whole. Header names are lower case; `received_s` is monotonic."""

    __slots__ = ("body", "headers", "keep_alive", "method", "received_s", "target", "version")

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.version = "1.1"
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.keep_alive = True
        self.received_s = 0.0

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, None where it is absent."""
        for key, value in self.headers:
            if key == name:
                return value
        return None
