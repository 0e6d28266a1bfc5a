"""A pool of connections to an engine whose connections are served by a test's own function."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mileage.wire.pool import UpstreamPool
from mileage.wire.upstream import BreakKind, Carrier

__all__ = [
    "ANSWER",
    "REQUEST",
    "Engine",
    "Serve",
    "Sink",
    "answers",
    "ask",
    "closes_at_the_second",
    "engine",
    "keeps_alive",
    "silent",
]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LIMIT_S = 60


class Sink:
    """Keeps what it is told; `ended` is set at the end, good or bad."""

    def __init__(self) -> None:
        self.upstream: Carrier | None = None
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.broken: tuple[str, str] | None = None
        self.was_cut = False
        self.ended = asyncio.Event()
        self.part = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status, self.headers = status, headers

    def body_received(self, data: bytes, now_s: float) -> None:
        self.parts.append(data)
        self.part.set()

    def answer_ended(self, data: bytes, now_s: float) -> None:
        self.parts.append(data)
        self.ended.set()

    def cut(self) -> None:
        self.was_cut = True
        self.ended.set()

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        self.broken = (kind, message)
        self.ended.set()


class Engine:
    """A server whose connections are served by the test's own function."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[bytes] = []
        self.errors: list[BaseException] = []

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        data = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(data)
        return data


@contextlib.asynccontextmanager
async def engine(
    serve: Callable[[Engine], Serve], tls: ssl.SSLContext | None = None, **limits: Any
) -> AsyncIterator[Any]:
    state = Engine()
    served: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(state)(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        served.add(asyncio.get_running_loop().create_task(handle(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    options = {"connections_max": 10, "connect_timeout_s": 5.0, "response_timeout_s": 5.0} | limits
    pool = UpstreamPool(f"{'https' if tls else 'http'}://127.0.0.1:{port}", **options)
    pool.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield state, pool
    finally:
        pool.stop()
        server.close()
        await asyncio.wait_for(asyncio.gather(*served), LIMIT_S)


async def ask(pool: UpstreamPool) -> Sink:
    sink = Sink()
    pool.send(REQUEST, sink, asyncio.get_running_loop().time())
    await sink.ended.wait()
    return sink


def answers(*parts: bytes) -> Callable[[Engine], Serve]:
    """Serve every request of a connection with the same bytes, then close."""

    def serve(state: Engine) -> Serve:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await state.head(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()

        return one

    return serve


def keeps_alive(state: Engine) -> Serve:
    async def loop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.head(reader)
            writer.write(ANSWER)

    return loop


def silent(state: Engine) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.head(reader)
        await reader.read()

    return serve


def closes_at_the_second(state: Engine) -> Serve:
    """Answer the first request of a connection, and close it as the second one comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.head(reader)
        writer.write(ANSWER)
        await state.head(reader)

    return serve
