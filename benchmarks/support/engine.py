"""A local engine that obeys orders in the request: paced events, errors, big answers.

`python -m benchmarks.support.engine --port N`. The orders stand in the request's `user` field, as
words of the form key=value: events, interval_ms, status, bytes (of a whole answer, or of each
event). It writes no more to a gateway that does not read. GET /stats tells what it saw.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import httptools
import uvloop

from benchmarks.support.machine import raise_file_limit
from benchmarks.support.payloads import (
    CHAT_MODEL,
    DONE_EVENT,
    STREAM_MODEL,
    chat_answer,
    models_answer,
    stamped_event,
    usage_event,
)

__all__ = ["main"]

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class _Stats:
    """Requests by what became of them."""

    def __init__(self) -> None:
        self.requests = self.finished = self.aborted = self.open = self.open_max = 0

    def encoded(self) -> bytes:
        return json.dumps(vars(self)).encode()


class _Engine(asyncio.Protocol):
    """One connection of a gateway; requests on it come one after another."""

    def __init__(self, stats: _Stats) -> None:
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._url = b""
        self._body: list[bytes] = []
        self._usage: bytes | None = None
        self._events = self._number = self._padding = 0
        self._paused = False
        self._interval_s = self._due_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._busy:
            self._stats.aborted += 1
            self._stats.open -= 1

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._busy and self._timer is None:
            self._due_s = self._loop.time()
            self._emit()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._url == b"/stats":
            self._answer(200, self._stats.encoded())
        elif self._url == b"/v1/models":
            self._answer(200, models_answer(CHAT_MODEL, STREAM_MODEL))
        elif self._url == b"/v1/chat/completions":
            self._complete(json.loads(b"".join(self._body)))
        else:
            self._answer(200 if self._url == b"/health" else 404, b"{}")

    def _complete(self, request: dict[str, object]) -> None:
        orders = dict(word.split("=") for word in str(request.get("user", "")).split())
        stats = self._stats
        stats.requests += 1
        stats.open += 1
        stats.open_max = max(stats.open_max, stats.open)
        self._busy = True
        status = int(orders.get("status", 200))
        if status != 200:
            self._finish()
            self._answer(status, b'{"error":{"message":"as ordered","type":"server_error"}}')
        elif request.get("stream"):
            options = request.get("stream_options")
            wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
            self._begin_stream(orders, wants_usage)
        else:
            self._finish()
            self._answer(200, _whole(str(request["model"]), int(orders.get("bytes", 0))))

    def _begin_stream(self, orders: dict[str, str], wants_usage: bool) -> None:
        self._events, self._number = int(orders.get("events", 16)), 0
        self._usage = usage_event(self._events - 1) if wants_usage else None
        self._padding = int(orders.get("bytes", 0))
        self._interval_s = float(orders.get("interval_ms", 0)) / 1000
        self._transport.write(_STREAM_HEAD)
        self._due_s = self._loop.time()
        self._emit()

    def _emit(self) -> None:
        """Write the event that is due, and be called again for the next one."""
        last = self._number == self._events - 1
        event = stamped_event(self._number, time.monotonic_ns(), last=last)
        self._transport.write(_chunk(event.ljust(self._padding)))
        self._number += 1
        self._timer = None
        if last:
            if self._usage is not None:
                self._transport.write(_chunk(self._usage))
            self._finish()
            self._transport.write(_chunk(DONE_EVENT) + b"0\r\n\r\n")
            return
        if self._paused:
            return
        self._due_s += self._interval_s
        self._timer = self._loop.call_at(self._due_s, self._emit)

    def _finish(self) -> None:
        self._busy = False
        self._stats.open -= 1
        self._stats.finished += 1

    def _answer(self, status: int, body: bytes) -> None:
        head = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode())
        self._transport.write(body)


@lru_cache(maxsize=8)
def _whole(model: str, at_least: int) -> bytes:
    """One object for all who ask, so that a thousand big answers on their way take no memory."""
    answer = chat_answer(model)
    return answer + b" " * (at_least - len(answer))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(port: int) -> None:
    stats = _Stats()
    factory: Callable[[], _Engine] = lambda: _Engine(stats)  # noqa: E731
    server = await asyncio.get_running_loop().create_server(
        factory, "127.0.0.1", port, backlog=8192
    )
    await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    raise_file_limit(32_768)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
