"""Closed-loop client: each connection sends its next request when its answer is whole."""

from __future__ import annotations

import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.support.judges import Judge
from benchmarks.support.payloads import NumberedRequest
from benchmarks.support.response import BadResponseError, ResponseReader

__all__ = ["ClosedLoopResult", "run_closed_loop"]

READ_BYTES = 65_536


@dataclass(slots=True)
class ClosedLoopResult:
    """What a run saw; `busy_s` is the time from its start to its last whole answer.

    Times in seconds, ascending: `latencies_s` from sending a request to the end of its answer,
    `first_s` to the first byte of its answer's body.
    """

    sent: int = 0
    completed: int = 0
    errors: int = 0
    first_error: str | None = None
    busy_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)

    @property
    def answers_per_s(self) -> float:
        """Whole answers per second until the last one.

        Those after the end of the window count, with their time: a slow server answers all its
        connections at nearly the same moments, and a window that cuts between them would lie.
        """
        return self.completed / self.busy_s if self.completed else 0.0

    def complain(self, text: str) -> None:
        """Count an error; the first one is kept to be shown."""
        self.errors += 1
        self.first_error = self.first_error or text


class _Client:
    """One kept connection and the answer on its way."""

    __slots__ = ("begun", "judge", "reader", "sent_ns", "socket")

    def __init__(self, port: int, judge: Judge) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = ResponseReader()
        self.judge = judge
        self.sent_ns = 0
        self.begun = False


def run_closed_loop(
    port: int,
    request: bytes,
    judge: Callable[[], Judge],
    *,
    connections: int,
    window_s: float,
    ramp_s: float = 0.0,
    drain_s: float = 15.0,
    requests: int | None = None,
) -> ClosedLoopResult:
    """Keep `connections` requests in flight for `window_s`, then let those in flight finish; with
    `requests` until so many are sent, if that is earlier.

    Connections are opened, each with its first request, evenly over `ramp_s`, which is part of the
    window. One that fails or gives no answer within the drain counts as an error and is not opened
    again: the run is invalid anyway, and its result says why.
    """
    with select.epoll() as poll:
        loop = _Loop(port, request, judge, poll, math.inf if requests is None else requests)
        start_ns = time.monotonic_ns()
        gap_ns = ramp_s * 1e9 / connections
        ramp = deque(start_ns + n * gap_ns for n in range(connections))
        try:
            loop.run(ramp, start_ns, start_ns + int(window_s * 1e9), drain_s)
        finally:
            loop.close()
    result = loop.result
    result.latencies_s.sort()
    result.first_s.sort()
    return result


class _Loop:
    """The connections by descriptor, and what came back on them."""

    def __init__(
        self,
        port: int,
        request: bytes,
        judge: Callable[[], Judge],
        poll: select.epoll,
        requests: float,
    ) -> None:
        self._port, self._judge, self._poll, self._requests = port, judge, poll, requests
        self._request = NumberedRequest(request)
        self._clients: dict[int, _Client] = {}
        self.result = ClosedLoopResult()

    def run(self, ramp: deque[float], start_ns: int, end_ns: int, drain_s: float) -> None:
        """Open a connection at each time of `ramp`; go on until all are done."""
        result, clients = self.result, self._clients
        while ramp or clients:
            now_ns = time.monotonic_ns()
            if now_ns > end_ns + drain_s * 1e9:
                break
            while ramp and ramp[0] <= now_ns:
                ramp.popleft()
                if not self._open():
                    ramp.clear()  # it takes no connections: one error says so
            for fd, _ in self._poll.poll(0.001 if ramp else 1.0):
                client = clients[fd]
                try:
                    if not self._read(client):
                        continue
                    now_ns = time.monotonic_ns()
                    if self._settle(client, now_ns):
                        result.busy_s = (now_ns - start_ns) / 1e9
                    if now_ns < end_ns and result.sent < self._requests:
                        self._send(client)
                        continue
                except (OSError, BadResponseError) as error:
                    result.complain(str(error))
                self._drop(fd)
        for _ in range(len(clients)):
            result.complain(f"no whole answer {drain_s} s after the end of the window")

    def close(self) -> None:
        """Close what is still open."""
        for client in self._clients.values():
            client.socket.close()

    def _open(self) -> bool:
        try:
            client = _Client(self._port, self._judge())
        except OSError as error:
            self.result.complain(str(error))
            return False
        self._clients[client.socket.fileno()] = client
        self._poll.register(client.socket, select.EPOLLIN)
        self._send(client)
        return True

    def _send(self, client: _Client) -> None:
        client.reader.reset()
        client.begun = False
        client.sent_ns = time.monotonic_ns()
        client.socket.sendall(self._request.next())
        self.result.sent += 1

    def _read(self, client: _Client) -> bool:
        """Take what arrived; whether the answer is whole."""
        data = client.socket.recv(READ_BYTES)
        if not data:
            raise BadResponseError("the connection was closed")
        whole = client.reader.feed(data)
        now_ns = time.monotonic_ns()
        if not client.begun and client.reader.parts:
            client.begun = True
            self.result.first_s.append((now_ns - client.sent_ns) / 1e9)
        client.judge.arrived(client.reader, now_ns)
        return whole

    def _settle(self, client: _Client, now_ns: int) -> bool:
        """Judge a whole answer."""
        complaint = client.judge.complaint(client.reader)
        if complaint is not None:
            self.result.complain(complaint)
            return False
        self.result.completed += 1
        self.result.latencies_s.append((now_ns - client.sent_ns) / 1e9)
        return True

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._clients.pop(fd).socket.close()
