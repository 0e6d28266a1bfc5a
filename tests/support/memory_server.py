"""A listener without a socket, and connections on a transport in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from mileage.wire.listener import HttpListener
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection

__all__ = ["GET", "Limits", "MemoryTransport", "Server", "run"]

GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
"""A request, but for its number."""


class Limits(msgspec.Struct, frozen=True):
    connections_max: int = 4
    headers_max: int = 20
    header_bytes_max: int = 1024
    body_bytes_max: int = 100
    buffer_bytes_max: int = 150
    pipeline_max: int = 3
    header_timeout_s: float = 10
    body_timeout_s: float = 20
    write_timeout_s: float = 30
    idle_timeout_s: float = 40


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; `high_water` bytes make it ask the protocol to pause."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.aborted = self.eof_written = False
        self.reading = True
        self.unread_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data

    def write_eof(self) -> None:
        self.eof_written = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Server:
    """A listener without a socket, whose handler answers when the test says so."""

    def __init__(self) -> None:
        self.pending: list[tuple[HttpRequest, ServerConnection]] = []
        self.refused: list[int] = []
        self.listener = HttpListener(
            Limits(),
            lambda request, connection: self.pending.append((request, connection)),
            error_body=lambda status, message: message.encode(),
            refused=self.refused.append,
        )

    def connect(self) -> tuple[ServerConnection, MemoryTransport]:
        connection, transport = ServerConnection(self.listener), MemoryTransport()
        connection.connection_made(transport)
        return connection, transport

    def answer(self, body: bytes) -> HttpRequest:
        request, connection = self.pending.pop(0)
        connection.respond(200, b"", body)
        return request

    def pass_time(self, seconds: float) -> None:
        self.listener.now_s += seconds
        for connection in [*self.listener.connections]:
            if connection.deadline_s <= self.listener.now_s:
                connection.expire()


def run(scenario: Callable[[Server], object]) -> None:
    async def main() -> None:
        result = scenario(Server())
        if asyncio.iscoroutine(result):
            await result

    asyncio.run(main())
