"""A server whose service times are drawn, and are so many times as long as the model's name says.

`python -m benchmarks.support.ab_server --port N`. A model is named `SCALE-ARM-SEED`, such as
`1.2-b-7`. An answer takes SCALE times a log-normal time around 200 ms, drawn by the request's own
bytes, times the mood of the machine: an autoregressive course of some percent that both arms of a
run (of a SEED) meet alike, so that requests of one slot depend on each other as on real machines.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import time
from random import Random
from typing import Final, cast

import msgspec
import uvloop

from benchmarks.support.machine import raise_file_limit
from benchmarks.support.payloads import CHAT_MODEL, chat_answer, models_answer

__all__ = ["Mood", "main", "service_s"]

SERVICE_S: Final = 0.2
SPREAD: Final = 0.4
"""Standard deviation of a service time's logarithm."""
MOOD_SPREAD: Final = 0.05
MOOD_STEP_S: Final = 0.2
MOOD_KEPT: Final = 0.8
"""What is left of a mood after a step: it lasts for about a second."""


class Mood:
    """A factor that goes up and down around 1 in the course of time."""

    def __init__(self, seed: str, *, start_s: float) -> None:
        self._rng, self._start_s = Random(f"mood {seed}"), start_s
        self._logs = [self._rng.gauss(0.0, MOOD_SPREAD)]

    def at(self, now_s: float) -> float:
        """The factor at this time."""
        step = max(0, int((now_s - self._start_s) / MOOD_STEP_S))
        fresh = MOOD_SPREAD * math.sqrt(1.0 - MOOD_KEPT**2)
        while len(self._logs) <= step:
            self._logs.append(MOOD_KEPT * self._logs[-1] + self._rng.gauss(0.0, fresh))
        return math.exp(self._logs[step])


def service_s(body: bytes, scale: float) -> float:
    """The seconds that the request takes, but for the mood: the same for the same bytes."""
    rng = Random(body)
    return scale * SERVICE_S * rng.lognormvariate(0.0, SPREAD)


class _Asked(msgspec.Struct):
    model: str


_asked: Final = msgspec.json.Decoder(_Asked)
_moods: Final[dict[str, Mood]] = {}
_body: Final = chat_answer(CHAT_MODEL)


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


_whole: Final = _answer(_body)
_models: Final = _answer(models_answer(CHAT_MODEL))


class _Connection(asyncio.Protocol):
    """One request after the other, as HTTP/1.1 has it."""

    def __init__(self) -> None:
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        head = data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        length = int(head[at + 17 :].partition(b"\r\n")[0]) if at >= 0 and end >= 0 else 0
        if end < 0 or len(data) < end + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        if head.startswith(b"get "):
            self._send(_models)
            return
        body = data[end + 4 :]
        scale, _, seed = _asked.decode(body).model.split("-")
        now_s = time.monotonic()
        mood = _moods.get(seed) or _moods.setdefault(seed, Mood(seed, start_s=now_s))
        self._loop.call_later(service_s(body, float(scale)) * mood.at(now_s), self._send, _whole)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    raise_file_limit(16_384)
    gc.freeze()
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
