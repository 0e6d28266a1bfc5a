"""Open-loop client: requests leave on a fixed schedule, whatever the answers do."""

from __future__ import annotations

import gc
import select
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from benchmarks.support.judges import Judge
from benchmarks.support.payloads import NumberedRequest
from benchmarks.support.response import BadResponseError, ResponseReader
from mileage.loadgen.timer_fd import TimerFd

__all__ = ["OpenLoopResult", "run_open_loop"]


@dataclass(slots=True)
class OpenLoopResult:
    """What a run saw, in seconds, ascending. `latencies_s` start at the SCHEDULED time.

    `lags_s`: how late the client itself sent; a high one tells of a disturbed machine, and is
    part of the latency.
    """

    sent: int = 0
    errors: int = 0
    first_error: str | None = None
    latencies_s: list[float] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """Count an error; the first one is kept to be shown."""
        self.errors += 1
        self.first_error = self.first_error or text


class _Client:
    __slots__ = ("reader", "scheduled_ns", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = ResponseReader()
        self.scheduled_ns = 0


class _Run:
    """The schedule, the idle connections (used in turn) and what came back."""

    def __init__(
        self, port: int, request: bytes, judge: Judge, connections: int, count: int, period_ns: int
    ) -> None:
        self.request = NumberedRequest(request)
        self.judge, self.period_ns = judge, period_ns
        self.result = OpenLoopResult()
        self.clients = {c.socket.fileno(): c for c in (_Client(port) for _ in range(connections))}
        self.idle = deque(self.clients.values())
        self.waiting: deque[int] = deque()
        self.left = count
        self.open = count

    def tick(self, due_ns: int, now_ns: int) -> int:
        """Send all that is due; gives the time of the next one."""
        while self.left and due_ns <= now_ns:
            self.waiting.append(due_ns)
            self.left -= 1
            due_ns += self.period_ns
        self.send_waiting()
        return due_ns

    def send_waiting(self) -> None:
        """Send what is due on connections that are idle."""
        while self.waiting and self.idle:
            client = self.idle.popleft()
            client.scheduled_ns = self.waiting.popleft()
            client.reader.reset()
            now_ns = time.monotonic_ns()
            client.socket.sendall(self.request.next())
            self.result.sent += 1
            self.result.lags_s.append((now_ns - client.scheduled_ns) / 1e9)

    def read(self, fd: int) -> None:
        """Take what arrived on a connection."""
        client = self.clients[fd]
        data = client.socket.recv(65_536)
        if not data:
            raise BadResponseError("the connection was closed")
        if not client.reader.feed(data):
            return
        self.result.latencies_s.append((time.monotonic_ns() - client.scheduled_ns) / 1e9)
        complaint = self.judge.complaint(client.reader)
        if complaint is not None:
            self.result.complain(complaint)
        self.open -= 1
        self.idle.append(client)
        if self.waiting:
            self.send_waiting()


def run_open_loop(
    port: int,
    request: bytes,
    judge: Judge,
    *,
    rate_per_s: float,
    duration_s: float,
    connections: int = 32,
    drain_s: float = 10.0,
) -> OpenLoopResult:
    """Send `rate_per_s` x `duration_s` requests, evenly spaced, over `connections`.

    A request that finds no idle connection waits for one; its wait counts.
    """
    period_ns = round(1e9 / rate_per_s)
    count = round(rate_per_s * duration_s)
    try:
        run = _Run(port, request, judge, connections, count, period_ns)
    except OSError as error:  # it does not accept connections
        refused = OpenLoopResult()
        refused.complain(str(error))
        return refused
    collecting = gc.isenabled()
    gc.disable()  # a collection would delay the requests that are due meanwhile
    due_ns = time.monotonic_ns() + 50_000_000
    deadline_ns = due_ns + int((duration_s + drain_s) * 1e9)
    ticker = TimerFd()
    try:
        ticker.arm_ns(due_ns, period_ns)
        with select.epoll() as poll:
            poll.register(ticker, select.EPOLLIN)
            for fd in run.clients:
                poll.register(fd, select.EPOLLIN)
            while run.open and time.monotonic_ns() < deadline_ns:
                for fd, _ in poll.poll(1.0):
                    if fd == ticker.fileno():
                        ticker.rest()
                        due_ns = run.tick(due_ns, time.monotonic_ns())
                    else:
                        run.read(fd)
    except (OSError, BadResponseError) as error:
        run.result.complain(str(error))
    finally:
        ticker.close()
        for client in run.clients.values():
            client.socket.close()
        if collecting:
            gc.enable()
    if run.open:
        run.result.complain(f"{run.open} requests without a whole answer")
    run.result.latencies_s.sort()
    run.result.lags_s.sort()
    return run.result
