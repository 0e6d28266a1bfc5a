"""Slow clients: they send heads or bodies byte by byte, or hardly read a big stream.

`python -m benchmarks.support.attacker PORT KEY COUNT SECONDS`. Connects COUNT clients, 45 % with
slow heads, 45 % with slow bodies, 10 % slow readers; prints `connected`, keeps at it for SECONDS,
and prints what became of them as JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import uvloop

from benchmarks.support.payloads import CHAT_MODEL, STREAM_MODEL, chat_request, http_request

__all__ = ["main"]

_BIG_STREAM = "events=100000 bytes=65536"
"""Far more than the kernel's buffers take for a reader that hardly reads."""
RECEIVE_BUFFER_BYTES = 4096
_RAMP_S = 1.5


@dataclass(slots=True)
class _Fate:
    """What became of the clients of one kind."""

    clients: int = 0
    closed: int = 0
    closed_after_s: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def encoded(self) -> dict[str, object]:
        after = sorted(self.closed_after_s)
        return {
            "clients": self.clients,
            "closed": self.closed,
            "closed_after_s": [round(after[0], 2), round(after[-1], 2)] if after else None,
            "statuses": dict(self.statuses),
        }


async def _dribble(port: int, at_once: bytes, slowly: bytes, fate: _Fate, until_s: float) -> None:
    """Send `at_once`, then one byte of `slowly` a second, until closed or the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    fate.clients += 1
    began_s = time.monotonic()
    writer.write(at_once)
    answer = asyncio.ensure_future(reader.read(-1))
    position = 0
    while time.monotonic() < until_s and not answer.done():
        writer.write(slowly[position : position + 1])
        position = min(position + 1, len(slowly) - 2)  # never comes to its end
        await asyncio.wait([answer], timeout=1.0)
    if answer.done():
        fate.closed += 1
        fate.closed_after_s.append(time.monotonic() - began_s)
        error = answer.exception()
        match = re.match(rb"HTTP/1.1 (\d+)", b"" if error else answer.result())
        fate.statuses[match[1].decode() if match else "none"] += 1
    answer.cancel()
    writer.transport.abort()


async def _stare(port: int, request: bytes, fate: _Fate, until_s: float) -> None:
    """Ask for an endless stream and read 1 KiB of it a second."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
    fate.clients += 1
    began_s = time.monotonic()
    writer.write(request)
    while time.monotonic() < until_s:
        try:
            data = await asyncio.wait_for(reader.read(1024), timeout=30)
        except (OSError, TimeoutError):
            data = b""
        if not data:
            fate.closed += 1
            fate.closed_after_s.append(time.monotonic() - began_s)
            break
        await asyncio.sleep(1.0)
    writer.transport.abort()


async def _attack(port: int, key: str, count: int, seconds: float) -> dict[str, _Fate]:
    fates = {"slow_head": _Fate(), "slow_body": _Fate(), "slow_reader": _Fate()}
    request = http_request(chat_request(CHAT_MODEL), key=key)
    head, _, body = request.partition(b"\r\n\r\n")
    big = http_request(chat_request(STREAM_MODEL, stream=True, user=_BIG_STREAM), key=key)
    until_s = time.monotonic() + _RAMP_S + seconds
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            if number % 10 == 0:
                job = _stare(port, big, fates["slow_reader"], until_s)
            elif number % 20 < 10:
                job = _dribble(port, request[:20], head[20:], fates["slow_head"], until_s)
            else:
                job = _dribble(port, head + b"\r\n\r\n", body, fates["slow_body"], until_s)
            tasks.create_task(job)
            await asyncio.sleep(_RAMP_S / count)
        sys.stdout.write("connected\n")
        sys.stdout.flush()
    return fates


def main() -> None:
    """Attack as the arguments say and report."""
    port, key, count, seconds = sys.argv[1:5]
    fates = uvloop.run(_attack(int(port), key, int(count), float(seconds)))
    sys.stdout.write(json.dumps({kind: fate.encoded() for kind, fate in fates.items()}) + "\n")


if __name__ == "__main__":
    main()
