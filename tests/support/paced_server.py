"""A server on loopback that answers JSON after a delay, holds its answers, or refuses at first."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, cast

from tests.support.accepting import close_server

__all__ = ["PacedServer"]

_ANSWER = b'{"choices": [{"message": {"content": "hi"}}]}'


class PacedServer:
    """Keeps its connections; `hold` keeps back all answers until `let_go`.

    `refuse`: so many requests get 503 first. `close_after_s`: a connection is closed so long after
    an answer on it.
    """

    def __init__(
        self, *, delay_s: float = 0.0, refuse: int = 0, close_after_s: float | None = None
    ) -> None:
        self.delay_s, self.refuse, self.close_after_s = delay_s, refuse, close_after_s
        self.requests = self.connections = self.at_once = self.most_at_once = 0
        self.open: set[asyncio.Transport] = set()
        self._held: list[_Connection] | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """http://127.0.0.1:port."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def hold(self) -> None:
        """Answer nobody."""
        self._held = []

    def let_go(self) -> None:
        """Answer all who wait, and everybody after them."""
        held, self._held = self._held, None
        for connection in held or ():
            connection.answer()

    def due(self, connection: _Connection) -> None:
        """A connection's answer may be sent."""
        if self._held is None:
            connection.answer()
        else:
            self._held.append(connection)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", 0, backlog=1024
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
        for transport in list(self.open):
            transport.abort()
        await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    def __init__(self, server: PacedServer) -> None:
        self._server = server
        self._data = b""
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.open.add(self._transport)
        self._server.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.discard(self._transport)
        if self._busy:
            self._server.at_once -= 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        if b"\r\n\r\n{}" not in self._data:
            return
        self._data = b""
        server = self._server
        server.requests += 1
        self._busy = True
        server.at_once += 1
        server.most_at_once = max(server.most_at_once, server.at_once)
        asyncio.get_running_loop().call_later(server.delay_s, server.due, self)

    def answer(self) -> None:
        """Send the answer."""
        if self._transport.is_closing():
            return
        server = self._server
        self._busy = False
        server.at_once -= 1
        refused = server.refuse > 0
        server.refuse -= refused
        head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % (503 if refused else 200, len(_ANSWER)) + _ANSWER)
        if server.close_after_s is not None:
            asyncio.get_running_loop().call_later(server.close_after_s, self._transport.close)
