"""One connection to a scripted engine: reads requests strictly, answers as its script says."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

from tests.support.engine_answers import (
    Asked,
    asked_of,
    error_answer,
    stream_events,
    whole_answer,
    words_of,
)
from tests.support.engine_script import Behaviour, Received

if TYPE_CHECKING:
    from tests.support.engine import ScriptedEngine

__all__ = ["Connection"]

_HEAD_BYTES_MAX = 1 << 20


class Connection(asyncio.Protocol):
    """One client connection, one request after the other; `engine` has the script."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._engine.connections.add(self)
        self._engine.connections_made += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.connections.discard(self)
        self._writable.set()
        if self._task is not None:
            self._task.cancel()
        self._engine.note()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if not separator:
            assert len(head) < _HEAD_BYTES_MAX
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, version = first.split(" ")
        headers = tuple((n.lower(), v) for n, v in (line.split(": ", 1) for line in lines))
        size = int(dict(headers).get("content-length", 0))
        if len(body) < size:
            return
        self._data = body[size:]
        if version != "HTTP/1.1" or self._task is not None or self._data:
            self._engine.mistakes.append(f"out of turn or malformed: {first!r}")
            self.reset()
            return
        request = Received(method, path, headers, body[:size])
        self._task = asyncio.ensure_future(self._answer(request))
        self._task.add_done_callback(self._answered)

    def reset(self) -> None:
        """Reset the connection."""
        if self._transport is not None and not self._transport.is_closing():
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._served += 1
        if not task.cancelled() and task.exception() is not None:
            self._engine.mistakes.append(f"the engine failed: {task.exception()!r}")
            self.reset()
        self._engine.note()

    async def _answer(self, request: Received) -> None:
        engine = self._engine
        if request.method != "POST":
            status, content_type, body = engine.page(request.path)
            self._write(_head(status, content_type, len(body)) + body)
            return
        behaviour = engine.following.popleft() if engine.following else engine.behaviour
        engine.received.append(request)
        engine.note()
        if behaviour.fault == "kept_alive" and self._served:
            assert self._transport is not None
            self._transport.close()
            return
        engine.started += 1
        engine.note()
        try:
            if await self._generate(request, behaviour):
                engine.finished += 1
            else:
                engine.failed += 1
        except asyncio.CancelledError:
            engine.aborted += 1
            raise

    async def _generate(self, request: Received, behaviour: Behaviour) -> bool:
        """Answer; whether in order."""
        if behaviour.fault_at is None and await self._fail(behaviour):
            return False
        if behaviour.first_token_s:
            await asyncio.sleep(behaviour.first_token_s)
        if behaviour.hold_at == 0:
            await self._engine.wait_released()
        asked = asked_of(request.body)
        if behaviour.status != 200 or behaviour.bad_input in asked.inputs:
            status = 400 if behaviour.status == 200 else behaviour.status
            body = error_answer(status, behaviour.message)
            head = _head(status, "application/json", len(body), behaviour.headers)
            self._write(head + body)
        else:
            answer = self._stream if asked.stream else self._whole
            if not await answer(request.path, asked, behaviour):
                return False
        if not behaviour.keep_alive or behaviour.framing == "close":
            assert self._transport is not None
            self._transport.close()
        return True

    async def _whole(self, path: str, asked: Asked, behaviour: Behaviour) -> bool:
        words = _words(asked, behaviour)
        await asyncio.sleep(behaviour.token_s * len(words))
        body = whole_answer(path, asked.model, words, asked.inputs)
        length = len(body) if behaviour.framing == "length" else None
        head = _head(200, "application/json", length, behaviour.headers)
        if behaviour.fault_at is not None:
            self._write(head + body[: len(body) // 2])
            if await self._fail(behaviour):
                return False
            body = body[len(body) // 2 :]
            head = b""
        self._write(head + body)
        return True

    async def _stream(self, path: str, asked: Asked, behaviour: Behaviour) -> bool:
        chunked = behaviour.framing == "length"
        headers = (*behaviour.headers, *(("Transfer-Encoding: chunked",) if chunked else ()))
        self._write(_head(200, "text/event-stream; charset=utf-8", None, headers))
        sent = 0
        words = _words(asked, behaviour)
        for event, is_token in stream_events(path, asked.model, words, usage=asked.usage):
            if is_token:
                if sent and sent == behaviour.hold_at:
                    await self._engine.wait_released()
                if sent == behaviour.fault_at and await self._fail(behaviour, event):
                    return False
                if behaviour.token_s:
                    await asyncio.sleep(behaviour.token_s)
                sent += 1
            self._write(_chunk(event) if chunked else event)
            self._engine.bytes_streamed += len(event)
            await self._writable.wait()
        await asyncio.sleep(behaviour.end_s)
        if chunked:
            self._write(b"0\r\n\r\n")
        return True

    async def _fail(self, behaviour: Behaviour, event: bytes = b"") -> bool:
        """Do what is to go wrong here; whether anything was."""
        transport, fault = self._transport, behaviour.fault
        assert transport is not None
        if fault is None or fault == "kept_alive":
            return False
        if fault == "hang":
            await self._engine.wait_released()
            return False
        if fault == "reset":
            self.reset()
        elif fault == "malformed":
            self._write(b"this is not HTTP\r\n\r\n")
        elif fault == "half_event":
            self._write(_chunk(event[: len(event) // 2]))
        if fault != "reset":
            transport.close()
        return True

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


def _words(asked: Asked, behaviour: Behaviour) -> list[str]:
    bound = asked.tokens_max
    count = behaviour.tokens if bound is None else min(bound, behaviour.tokens)
    return words_of(count, behaviour.token_bytes, asked.prompt if behaviour.echo else "")


def _head(
    status: int, content_type: str, length: int | None, headers: tuple[str, ...] = ()
) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Type: {content_type}", *headers]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
