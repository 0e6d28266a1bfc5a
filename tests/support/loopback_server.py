"""An HTTP server on loopback that answers with exact bytes, for clients that must bear anything."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeAlias, cast

import msgspec

from tests.support.accepting import close_server

__all__ = ["Answer", "Hang", "LoopbackServer", "Reset", "Seen", "http"]


class Seen(msgspec.Struct, frozen=True):
    """A request as it arrived; header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Hang(msgspec.Struct, frozen=True):
    """Send this and then nothing, with the connection left open."""

    first: bytes = b""


class Reset(msgspec.Struct, frozen=True):
    """Send this, then reset the connection."""

    first: bytes = b""


Answer: TypeAlias = bytes | Hang | Reset


def http(status: int, body: bytes = b"", headers: Sequence[str] = ()) -> bytes:
    """A well-formed response."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class LoopbackServer:
    """Answers every request with what `answer` gives for it, then closes the connection."""

    def __init__(
        self, answer: Callable[[Seen], Answer], *, context: ssl.SSLContext | None = None
    ) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.transports: set[asyncio.Transport] = set()
        self._changed = asyncio.Event()
        self._context = context
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """http(s)://127.0.0.1:port."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"{'https' if self._context else 'http'}://127.0.0.1:{port}"

    def note(self) -> None:
        """Wake those who wait in `until`: a request came or a connection went."""
        self._changed.set()

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait for something that becomes true by a request or by a connection's end."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", 0, ssl=self._context
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        await close_server(self._server)
        for transport in list(self.transports):
            transport.abort()
        await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    def __init__(self, server: LoopbackServer) -> None:
        self._server = server
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.transports.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.transports.discard(cast("asyncio.Transport", self._transport))
        self._server.note()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        if len(body) < int(headers.get("content-length", 0)):
            return
        seen = Seen(method, target, headers, body)
        self._server.seen.append(seen)
        self._server.note()
        self._send(self._server.answer(seen))

    def _send(self, answer: Answer) -> None:
        assert self._transport is not None
        if isinstance(answer, bytes):
            self._transport.write(answer)
            self._transport.close()
        else:
            self._transport.write(answer.first)
            if isinstance(answer, Reset):
                sock = self._transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._transport.abort()
