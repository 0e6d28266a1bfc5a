"""Load client: many different requests, on a schedule or in closed loops, every token timed.

One thread with epoll on raw sockets, so that it costs little beside the programs under test; how
late it sent its requests is part of what it measures, and can be read off its calls.
"""

from __future__ import annotations

import gc
import re
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.support.calls import Call
from benchmarks.support.response import BadResponseError, ResponseReader
from mileage.loadgen.timer_fd import TimerFd

__all__ = ["Loop", "run_loops", "run_schedule"]

_TOKEN = re.compile(rb'"content": ?"[^"]')
"""In each event that carries text; role and usage events carry none."""
_DONE = b"data: [DONE]"
_READ_BYTES = 65_536
_CLOSED = "the connection was closed"


@dataclass(frozen=True, slots=True)
class Loop:
    """A closed loop: each of `connections` sends the next call when its last one is answered."""

    calls: Iterator[Call]
    connections: int


class _Client:
    """One connection, and the call that is on it."""

    __slots__ = ("call", "connected", "loop", "reader", "rest", "seen", "socket", "times_s")

    def __init__(self, port: int, call: Call, loop: Loop | None) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex(("127.0.0.1", port))
        self.connected = False
        self.loop = loop
        self.take(call)

    def take(self, call: Call) -> None:
        """Be the connection of another call."""
        self.call = call
        self.reader = ResponseReader()
        self.times_s: list[float] = []
        self.seen, self.rest = 0, b""

    def read_events(self, now_s: float) -> None:
        """Note the time of each token in what arrived."""
        parts = self.reader.parts
        data = self.rest + b"".join(parts[self.seen :])
        self.seen = len(parts)
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self.rest = data
            return
        self.rest = data[end:]
        self.times_s.extend([now_s] * len(_TOKEN.findall(data, 0, end)))

    def settle(self, now_s: float) -> None:
        """The answer is whole."""
        call, reader = self.call, self.reader
        call.status, call.end_s = reader.status, now_s
        streams = b"\r\ncontent-type: text/event-stream" in reader.head
        if reader.status != 200:
            call.error = reader.body[:300].decode("utf-8", "replace")
            call.whole = True
        elif streams and not (self.times_s and _DONE in reader.body[-64:]):
            call.error = f"a stream that ends with {reader.body[-100:]!r}"
        else:
            call.whole = True


class _Run:
    def __init__(self, port: int, *, keep: bool, poll: select.epoll) -> None:
        self._port, self._keep, self._poll = port, keep, poll
        self._clients: dict[int, _Client] = {}
        self._idle: deque[_Client] = deque()
        self.start_ns = time.monotonic_ns()
        self.open = 0
        self.done: list[Call] = []
        self.until_s = float("inf")
        """Loops send nothing more after this."""

    def now_s(self) -> float:
        """Seconds since the start."""
        return (time.monotonic_ns() - self.start_ns) / 1e9

    def begin(self, call: Call, loop: Loop | None = None) -> None:
        """Send a call, on an idle connection where there is one."""
        self.open += 1
        while self._idle:
            client = self._idle.popleft()
            client.take(call)
            client.loop = loop
            if self._send(client):
                return
            self._drop(client)  # it was closed while it was idle
        client = _Client(self._port, call, loop)
        self._clients[client.socket.fileno()] = client
        self._poll.register(client.socket, select.EPOLLOUT)

    def _send(self, client: _Client) -> bool:
        try:
            client.socket.sendall(client.call.request)
        except OSError:
            return False
        client.call.sent_s = self.now_s()
        return True

    def ready(self, fd: int) -> None:
        """A connection can be written to for the first time, or read."""
        client = self._clients[fd]
        if not client.connected:
            code = client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code or not self._send(client):
                self._fail(client, f"no connection (errno {code})")
                return
            client.connected = True
            self._poll.modify(client.socket, select.EPOLLIN)
            return
        try:
            data = client.socket.recv(_READ_BYTES)
            if not data:
                raise BadResponseError(_CLOSED)
            whole = client.reader.feed(data)
        except BlockingIOError:
            return
        except (OSError, BadResponseError) as error:
            if client in self._idle:
                self._idle.remove(client)
                self._drop(client)
            else:
                self._fail(client, str(error))
            return
        now_s = self.now_s()
        client.read_events(now_s)
        if whole:
            client.settle(now_s)
            self._over(client)

    def _over(self, client: _Client) -> None:
        loop = client.loop
        self._finish(client)
        if self._keep and b"\r\nconnection: close" not in client.reader.head:
            self._idle.append(client)
        else:
            self._drop(client)
        self.follow(loop)

    def follow(self, loop: Loop | None) -> None:
        """The next call of a loop takes the place of the one that is over."""
        if loop is None or (now_s := self.now_s()) >= self.until_s:
            return
        call = next(loop.calls, None)
        if call is not None:
            call.due_s = now_s
            self.begin(call, loop)

    def _fail(self, client: _Client, error: str) -> None:
        client.call.status = client.reader.status
        client.call.error = error
        client.call.end_s = self.now_s()
        self._finish(client)
        self._drop(client)
        # A server that refuses connections is not asked again at once: its loop ends.

    def _finish(self, client: _Client) -> None:
        call = client.call
        call.first_s = client.times_s[0] if client.times_s else None
        call.note_times(client.times_s)
        self.done.append(call)
        self.open -= 1

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client.socket.fileno())
        self._poll.unregister(client.socket)
        client.socket.close()

    def close(self) -> None:
        """End all connections; what is on them is given up."""
        idle = set(map(id, self._idle))
        for client in self._clients.values():
            if id(client) not in idle:
                client.call.status = client.reader.status
                client.call.error = "given up"
                self._finish(client)
            client.socket.close()


def run_schedule(
    port: int, calls: Sequence[Call], *, drain_s: float, keep_connections: bool = True
) -> float:
    """Send every call when it is due, whatever the answers do; fills in what became of each.

    Those that have no whole answer `drain_s` after the last was due are given up, and their
    connections closed. Gives the seconds that it took.
    """
    with select.epoll() as poll, _quiet():
        run = _Run(port, keep=keep_connections, poll=poll)
        timer = TimerFd()
        poll.register(timer, select.EPOLLIN)
        left = deque(calls)
        end_s = (calls[-1].due_s if calls else 0.0) + drain_s
        try:
            timer.arm_ns(run.start_ns + int(left[0].due_s * 1e9) if left else 1)
            while (left or run.open) and run.now_s() < end_s:
                for fd, _ in poll.poll(min(1.0, max(0.001, end_s - run.now_s()))):
                    if fd != timer.fileno():
                        run.ready(fd)
                        continue
                    timer.rest()
                    while left and left[0].due_s <= run.now_s():
                        run.begin(left.popleft())
                    if left:
                        timer.arm_ns(run.start_ns + int(left[0].due_s * 1e9))
            return run.now_s()
        finally:
            timer.close()
            run.close()


def run_loops(
    port: int,
    loops: Sequence[Loop],
    *,
    duration_s: float,
    drain_s: float = 10.0,
    keep_connections: bool = True,
) -> list[Call]:
    """Keep the connections of every loop busy for so long, then let what is in flight finish.

    A loop whose calls come to an end ends earlier.

    Gives all calls; those without a whole answer after the drain are given up.
    """
    with select.epoll() as poll, _quiet():
        run = _Run(port, keep=keep_connections, poll=poll)
        run.until_s = duration_s
        try:
            for loop in loops:
                for _ in range(loop.connections):
                    run.follow(loop)
            end_s = duration_s + drain_s
            while run.open and (now_s := run.now_s()) < end_s:
                for fd, _ in poll.poll(min(1.0, end_s - now_s)):
                    run.ready(fd)
        finally:
            run.close()
        return run.done


class _quiet:  # noqa: N801 -- used as a statement
    """No garbage collection meanwhile: it would delay what is due."""

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            gc.enable()
