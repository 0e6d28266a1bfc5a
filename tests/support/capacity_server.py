"""A server of known capacity: so many slots, each of which takes a known time for an answer.

`python -m tests.support.capacity_server --port P` runs it. With `--lock FILE` all servers that name
the same file answer one at a time together: replicas that share something.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.support.accepting import close_server

__all__ = ["CapacityServer"]


class CapacityServer:
    """Streams `tokens` tokens over `service_s` seconds, `slots` answers at a time."""

    def __init__(
        self,
        *,
        slots: int = 2,
        service_s: float = 0.02,
        tokens: int = 4,
        lock: Path | None = None,
        work_s: float = 0.0,
    ) -> None:
        self._slots, self._service_s, self._tokens = asyncio.Semaphore(slots), service_s, tokens
        self._lock, self._work_s = lock, work_s
        self._server: asyncio.Server | None = None
        self.answers = 0

    async def start(self, port: int = 0) -> None:
        """Listen on loopback."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._server is not None
        await close_server(self._server)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = 0
                for line in head.split("\r\n"):
                    name, _, value = line.partition(":")
                    length = int(value) if name == "content-length" else length
                await reader.readexactly(length)
                await self._answer(head.split(" ")[1], writer)
        writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/v1/models":
            body = msgspec.json.encode({"object": "list", "data": [{"id": "m", "object": "model"}]})
            writer.write(_head(200, f"content-length: {len(body)}") + body)
        elif path == "/v1/chat/completions":
            async with self._slots, self._held():
                await self._stream(writer)
            self.answers += 1
        else:
            writer.write(_head(404, "content-length: 0"))
        await writer.drain()

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        if self._lock is None:
            yield
            return
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, "content-type: text/event-stream", "transfer-encoding: chunked"))
        begin_s = time.monotonic()
        while time.monotonic() - begin_s < self._work_s:  # keeps a core busy
            pass
        for number in range(self._tokens):
            due_s = begin_s + self._service_s * (number + 1) / self._tokens
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            finish = "stop" if number == self._tokens - 1 else None
            choice = {"index": 0, "delta": {"content": "x "}, "finish_reason": finish}
            writer.write(_event({"object": "chat.completion.chunk", "choices": [choice]}))
            await writer.drain()
        usage = {"prompt_tokens": 8, "completion_tokens": self._tokens, "total_tokens": 8}
        writer.write(_event({"object": "chat.completion.chunk", "choices": [], "usage": usage}))
        writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _head(status: int, *headers: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status} X", *headers, "", "")).encode()


def _event(tree: dict[str, object]) -> bytes:
    return _chunk(b"data: " + msgspec.json.encode({"id": "c", "model": "m", **tree}) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def _run(arguments: argparse.Namespace) -> None:
    server = CapacityServer(
        slots=arguments.slots,
        service_s=arguments.service,
        tokens=arguments.tokens,
        lock=arguments.lock,
        work_s=arguments.work,
    )
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    await server.start(arguments.port)
    await ending.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--service", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--work", type=float, default=0.0)
    parser.add_argument("--lock", type=Path)
    asyncio.run(_run(parser.parse_args()))
