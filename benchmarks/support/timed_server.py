"""A server that does what it is told to the tenth of a millisecond, and tells what it really did.

`python -m benchmarks.support.timed_server --port N`. One thread with epoll and a timer to the
microsecond, meant for a core of its own. Orders stand in a request's `user` field as words of the
form key=value: first_ms (before the first event, or the whole answer), gaps_ms (between events, a
list with commas), stall_ms (it does nothing at all for so long, for nobody). A request without
orders gets its whole answer at once, or `max_tokens` events one `--gap-ms` after the other.
GET /truth gives, by the answers' x-request-id, when each request was read and each part written.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import select
import socket
import time
from array import array
from contextlib import suppress

import msgspec

from benchmarks.support.machine import raise_file_limit
from benchmarks.support.payloads import CHAT_MODEL, chat_answer, models_answer
from benchmarks.support.stream_parts import StreamParts
from mileage.loadgen.timer_fd import TimerFd

__all__ = ["Truth", "main"]

_READ_BYTES = 262_144
_SPIN_NS = 60_000
"""Before a part is due, the server waits for it without sleep: waking takes about as long."""
_BATCH = 256
"""Parts written in one go, before requests are read again."""


class Truth(msgspec.Struct, gc=False):
    """What was done for one request, in seconds on the monotonic clock."""

    read_s: float
    written_s: list[float] = []
    """Each event, or the whole answer."""


class _Orders(msgspec.Struct):
    stream: bool = False
    user: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream_options: dict[str, bool] | None = None


class _Reply:
    """An answer that is being written."""

    __slots__ = ("connection", "gaps_ns", "parts", "place", "written_s")

    def __init__(
        self, connection: _Connection, gaps_ns: list[int], parts: StreamParts | None
    ) -> None:
        self.connection, self.gaps_ns, self.parts = connection, gaps_ns, parts
        self.place = 0
        self.written_s = array("d")


class _Connection:
    __slots__ = ("buffer", "number", "open", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self.buffer, self.open = sock, b"", True
        self.number = 0


class _Server:
    def __init__(self, port: int, *, gap_ms: float, events: int) -> None:
        self._gap_ns, self._events = int(gap_ms * 1e6), events
        self._listener = socket.create_server(("127.0.0.1", port), backlog=8192)
        self._listener.setblocking(False)
        self._poll = select.epoll()
        self._timer = TimerFd()
        self._poll.register(self._listener, select.EPOLLIN)
        self._poll.register(self._timer, select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[int, int, _Reply]] = []
        self._truths: dict[str, tuple[float, array[float]]] = {}
        self._stalls: list[tuple[float, float]] = []
        self._number = 0
        self._whole = chat_answer(CHAT_MODEL)
        self._instant = _head(b"application/json", len(self._whole)) + self._whole
        self._parts = StreamParts()

    def serve(self) -> None:
        listener, timer = self._listener.fileno(), self._timer.fileno()
        while True:
            for fd, _ in self._poll.poll(0 if self._write_due() else -1):
                if fd == timer:
                    self._timer.rest()
                elif fd == listener:
                    self._accept()
                else:
                    self._read(self._connections[fd])

    def _write_due(self) -> bool:
        """Write what is due; True where more is due at once, else the timer is set."""
        due = self._due
        for _ in range(_BATCH):
            if not due:
                return False
            at_ns = due[0][0]
            now_ns = time.monotonic_ns()
            if at_ns - now_ns > _SPIN_NS:
                self._timer.arm_ns(at_ns - _SPIN_NS)
                return False
            while now_ns < at_ns:
                now_ns = time.monotonic_ns()
            reply = due[0][2]
            next_ns = self._write(reply)
            if next_ns is None:
                heapq.heappop(due)
            else:
                self._number += 1
                heapq.heapreplace(due, (at_ns + next_ns, self._number, reply))
        return True

    def _write(self, reply: _Reply) -> int | None:
        """Write the reply's next part; the nanoseconds to the one after it, None at the end."""
        place, parts = reply.place, reply.parts
        last = place == len(reply.gaps_ns)
        if parts is not None:
            data = parts.last(place + 1) if last else parts.event
        else:
            data = self._whole
        reply.written_s.append(time.monotonic())
        if reply.connection.open:
            self._send(reply.connection, data)
        reply.place += 1
        return None if last or not reply.connection.open else reply.gaps_ns[place]

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(64):
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[sock.fileno()] = _Connection(sock)
                self._poll.register(sock, select.EPOLLIN)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            connection.open = False
            self._poll.unregister(connection.socket)
            del self._connections[connection.socket.fileno()]
            connection.socket.close()
            return
        read_s = time.monotonic()
        data = connection.buffer + data
        end = data.find(b"\r\n\r\n")
        head = data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        length = int(head[at + 17 :].partition(b"\r\n")[0]) if at >= 0 and end >= 0 else 0
        if end < 0 or len(data) < end + 4 + length:
            connection.buffer = data
            return
        connection.buffer = b""
        if head.startswith(b"get "):
            self._answer_get(connection, head.split(b" ", 2)[1])
        else:
            self._obey(connection, data[end + 4 :], read_s)

    def _answer_get(self, connection: _Connection, path: bytes) -> None:
        if path == b"/truth":
            by_id = {k: Truth(read_s, list(times)) for k, (read_s, times) in self._truths.items()}
            body = msgspec.json.encode({"requests": by_id, "stalls": self._stalls})
            self._truths.clear()
            self._stalls.clear()
        else:
            body = models_answer(CHAT_MODEL)
        self._send(connection, _head(b"application/json", len(body)) + body)

    def _obey(self, connection: _Connection, body: bytes, read_s: float) -> None:
        request = _orders.decode(body)
        if not request.user and not request.stream:
            self._send(connection, self._instant)
            return
        orders = dict(word.split("=") for word in request.user.split())
        if "stall_ms" in orders:
            time.sleep(float(orders["stall_ms"]) / 1000)
            self._stalls.append((read_s, time.monotonic()))
        gaps_ns: list[int] = []
        parts = None
        request_id = str(len(self._truths))
        if request.stream:
            parts = self._parts
            head = _head(b"text/event-stream", None, request_id)
            if "gaps_ms" in orders:
                gaps_ns = [int(float(x) * 1e6) for x in orders["gaps_ms"].split(",")]
            else:
                count = request.max_completion_tokens or request.max_tokens or self._events
                gaps_ns = [self._gap_ns] * (count - 1)
        else:
            head = _head(b"application/json", len(self._whole), request_id)
        reply = _Reply(connection, gaps_ns, parts)
        self._truths[request_id] = (read_s, reply.written_s)
        self._send(connection, head)
        first_ns = int(float(orders.get("first_ms", self._gap_ns / 1e6)) * 1e6)
        self._number += 1
        heapq.heappush(self._due, (int(read_s * 1e9) + first_ns, self._number, reply))

    def _send(self, connection: _Connection, data: bytes) -> None:
        try:
            sent = connection.socket.send(data)
        except OSError:
            connection.open = False
            return
        if sent < len(data):  # /truth of a long run, to a client that waits for it
            connection.socket.setblocking(True)
            connection.socket.sendall(data[sent:])
            connection.socket.setblocking(False)


_orders = msgspec.json.Decoder(_Orders)


def _head(kind: bytes, length: int | None, request_id: str = "") -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-type: " + kind]
    if request_id:
        lines.append(b"x-request-id: " + request_id.encode())
    if length is None:
        lines.append(b"transfer-encoding: chunked")
    else:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--gap-ms", type=float, default=20.0, help="between events without orders")
    parser.add_argument("--events", type=int, default=128, help="where no max_tokens is asked for")
    arguments = parser.parse_args()
    raise_file_limit(32_768)
    gc.freeze()
    gc.disable()
    _Server(arguments.port, gap_ms=arguments.gap_ms, events=arguments.events).serve()


if __name__ == "__main__":
    main()
