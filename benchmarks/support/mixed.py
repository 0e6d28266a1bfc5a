"""Mixed load: whole answers, streams, errors of both sides, cancels, kept and new connections."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.support.judges import ExactBody, StampedEvents
from benchmarks.support.payloads import (
    CHAT_MODEL,
    STREAM_MODEL,
    chat_answer,
    chat_request,
    http_request,
)
from benchmarks.support.response import BadResponseError, ResponseReader

__all__ = ["DECK", "MixedLoad", "deck"]

EVENTS = 8
DECK = {
    "whole": 60,
    "whole_new_connection": 5,
    "stream": 20,
    "engine_error": 4,
    "bad_json": 2,
    "unknown_model": 2,
    "wrong_key": 2,
    "cancelled": 5,
}
"""How many of each kind in a hundred requests."""


@dataclass(frozen=True, slots=True)
class _Kind:
    request: bytes
    status: int


class MixedLoad:
    """Workers that draw kinds of requests from a shuffled deck, each with its own connection.

    `on_done` is called with the number of requests done so far.
    """

    def __init__(self, port: int, key: str, on_done: Callable[[int], None]) -> None:
        self._port, self._on_done = port, on_done
        self._kinds = _kinds(key)
        self.done: Counter[str] = Counter()
        self.errors = 0
        self.first_error: str | None = None

    async def run(self, total: int, *, workers: int, seed: int) -> None:
        """Send `total` requests."""
        kinds = deck(total, random.Random(seed))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(self._work(kinds))

    async def _work(self, kinds: Iterator[str]) -> None:
        connection = None
        for kind in kinds:
            try:
                if connection is None:
                    connection = await asyncio.open_connection("127.0.0.1", self._port)
                async with asyncio.timeout(30):
                    keep = await self._one(kind, *connection)
            except (OSError, BadResponseError, TimeoutError) as error:
                self._complain(f"{kind}: {error!r}")
                keep = False
            self.done[kind] += 1
            self._on_done(self.done.total())
            if not keep and connection is not None:
                connection[1].close()
                connection = None
        if connection is not None:
            connection[1].close()

    async def _one(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """One request; whether its connection can take another one."""
        wanted = self._kinds[kind]
        writer.write(wanted.request)
        answer = ResponseReader()
        judge = StampedEvents(EVENTS, lambda _number, _delay, _now: None)
        whole = False
        while not whole:
            data = await reader.read(65_536)
            if not data:
                raise BadResponseError("the connection was closed")
            whole = answer.feed(data)
            judge.arrived(answer, 0)
            if kind == "cancelled" and answer.parts:
                return False
        if answer.status != wanted.status:
            self._complain(f"{kind}: status {answer.status}: {answer.body[:200]!r}")
        elif kind == "stream":
            self._complain(judge.complaint(answer))
        elif kind.startswith("whole"):
            self._complain(ExactBody(chat_answer()).complaint(answer))
        elif b'"error"' not in answer.body:
            self._complain(f"{kind}: no error object: {answer.body[:200]!r}")
        return b"\r\nconnection: close\r\n" not in answer.head

    def _complain(self, text: str | None) -> None:
        if text is not None:
            self.errors += 1
            self.first_error = self.first_error or text


def deck(total: int, draw: random.Random) -> Iterator[str]:
    """`total` kinds, in every hundred as many of each as DECK says."""
    hundred = [kind for kind, count in DECK.items() for _ in range(count)]
    for start in range(0, total, len(hundred)):
        draw.shuffle(hundred)
        yield from hundred[: total - start]


def _kinds(key: str) -> dict[str, _Kind]:
    whole = chat_request(CHAT_MODEL)
    stream = chat_request(STREAM_MODEL, stream=True, user=f"events={EVENTS}")
    failing = chat_request(CHAT_MODEL, user="status=500")
    endless = chat_request(STREAM_MODEL, stream=True, user="events=1000 interval_ms=20")
    return {
        "whole": _Kind(http_request(whole, key=key), 200),
        "whole_new_connection": _Kind(http_request(whole, key=key, close=True), 200),
        "stream": _Kind(http_request(stream, key=key), 200),
        "engine_error": _Kind(http_request(failing, key=key), 500),
        "bad_json": _Kind(http_request(b'{"model": "bench", "messages": [', key=key), 400),
        "unknown_model": _Kind(http_request(chat_request("nobody-has-it"), key=key), 404),
        "wrong_key": _Kind(http_request(whole, key="sk-wrong"), 401),
        "cancelled": _Kind(http_request(endless, key=key), 200),
    }
