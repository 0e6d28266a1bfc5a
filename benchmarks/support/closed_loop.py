"""Closed-loop client: each connection sends its next request when its answer is whole."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.support.judges import Judge
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
) -> ClosedLoopResult:
    """Keep `connections` requests in flight for `window_s`, then let those in flight finish.

    The first requests leave evenly over `ramp_s`, which is part of the window.

    A connection that fails or gives no answer within the drain counts as an error and is not
    opened again: the run is invalid anyway, and its result says why.
    """
    result = ClosedLoopResult()
    clients = {}
    with select.epoll() as poll:
        try:
            for _ in range(connections):
                client = _Client(port, judge())
                clients[client.socket.fileno()] = client
                poll.register(client.socket, select.EPOLLIN)
            start_ns = time.monotonic_ns()
            gap_ns = ramp_s * 1e9 / connections
            ramp = deque((start_ns + n * gap_ns, c) for n, c in enumerate(clients.values()))
            end_ns = start_ns + int(window_s * 1e9)
            _loop(poll, clients, ramp, request, result, (start_ns, end_ns), drain_s)
            for _ in range(len(clients)):
                result.complain(f"no whole answer {drain_s} s after the end of the window")
        except OSError as error:  # it does not accept connections
            result.complain(str(error))
        finally:
            for client in clients.values():
                client.socket.close()
    result.latencies_s.sort()
    result.first_s.sort()
    return result


def _loop(
    poll: select.epoll,
    clients: dict[int, _Client],
    ramp: deque[tuple[float, _Client]],
    request: bytes,
    result: ClosedLoopResult,
    window_ns: tuple[int, int],
    drain_s: float,
) -> None:
    start_ns, end_ns = window_ns
    while clients:
        now_ns = time.monotonic_ns()
        if now_ns > end_ns + drain_s * 1e9:
            return
        while ramp and ramp[0][0] <= now_ns:
            _send(ramp.popleft()[1], request, result)
        for fd, _ in poll.poll(0.001 if ramp else 1.0):
            client = clients[fd]
            try:
                data = client.socket.recv(READ_BYTES)
                if not data:
                    raise BadResponseError("the connection was closed")
                whole = client.reader.feed(data)
            except (OSError, BadResponseError) as error:
                result.complain(str(error))
                _drop(poll, clients, fd)
                continue
            now_ns = time.monotonic_ns()
            if not client.begun and client.reader.parts:
                client.begun = True
                result.first_s.append((now_ns - client.sent_ns) / 1e9)
            client.judge.arrived(client.reader, now_ns)
            if not whole:
                continue
            if _settle(client, result, now_ns):
                result.busy_s = (now_ns - start_ns) / 1e9
            if now_ns < end_ns:
                _send(client, request, result)
            else:
                _drop(poll, clients, fd)


def _settle(client: _Client, result: ClosedLoopResult, now_ns: int) -> bool:
    complaint = client.judge.complaint(client.reader)
    if complaint is not None:
        result.complain(complaint)
        return False
    result.completed += 1
    result.latencies_s.append((now_ns - client.sent_ns) / 1e9)
    return True


def _send(client: _Client, request: bytes, result: ClosedLoopResult) -> None:
    client.reader.reset()
    client.begun = False
    client.sent_ns = time.monotonic_ns()
    client.socket.sendall(request)
    result.sent += 1


def _drop(poll: select.epoll, clients: dict[int, _Client], fd: int) -> None:
    poll.unregister(fd)
    clients.pop(fd).socket.close()
