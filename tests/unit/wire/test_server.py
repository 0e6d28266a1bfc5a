"""Server connections: order, keep-alive, limits and deadlines, on a transport in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from mileage.wire.listener import HttpListener
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection


class Limits(msgspec.Struct, frozen=True):
    connections_max: int = 4
    headers_max: int = 20
    header_bytes_max: int = 1024
    body_bytes_max: int = 100
    buffer_bytes_max: int = 150
    pipeline_max: int = 3
    header_timeout_s: float = 10
    body_timeout_s: float = 20
    write_timeout_s: float = 30
    idle_timeout_s: float = 40


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; `high_water` bytes make it ask the protocol to pause."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.aborted = self.eof_written = False
        self.reading = True
        self.unread_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data

    def write_eof(self) -> None:
        self.eof_written = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Server:
    """A listener without a socket, whose handler answers when the test says so."""

    def __init__(self) -> None:
        self.pending: list[tuple[HttpRequest, ServerConnection]] = []
        self.refused: list[int] = []
        self.listener = HttpListener(
            Limits(),
            lambda request, connection: self.pending.append((request, connection)),
            error_body=lambda status, message: message.encode(),
            refused=self.refused.append,
        )

    def connect(self) -> tuple[ServerConnection, MemoryTransport]:
        connection, transport = ServerConnection(self.listener), MemoryTransport()
        connection.connection_made(transport)
        return connection, transport

    def answer(self, body: bytes) -> HttpRequest:
        request, connection = self.pending.pop(0)
        connection.respond(200, b"", body)
        return request

    def pass_time(self, seconds: float) -> None:
        self.listener.now_s += seconds
        for connection in [*self.listener.connections]:
            if connection.deadline_s <= self.listener.now_s:
                connection.expire()


def run(scenario: Callable[[Server], object]) -> None:
    async def main() -> None:
        result = scenario(Server())
        if asyncio.iscoroutine(result):
            await result

    asyncio.run(main())


GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"


def test_pipelined_requests_are_answered_one_by_one_in_order() -> None:
    async def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0 + GET % 1 + GET % 2)
        assert [r.target for r, _ in server.pending] == [b"/0"]
        for index in range(3):
            request = server.answer(b"answer %d" % index)
            assert request.target == b"/%d" % index
            await asyncio.sleep(0)
        assert [transport.written.find(b"answer %d" % i) > 0 for i in range(3)] == [True] * 3
        assert not transport.closed
        assert connection.phase == "idle"

    run(scenario)


def test_more_pipelined_requests_than_allowed_are_left_to_another_connection() -> None:
    async def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(b"".join(GET % i for i in range(9)))
        for _ in range(4):
            server.answer(b"")
            await asyncio.sleep(0)
        assert not server.pending
        assert transport.closed

    run(scenario)


def test_bad_bytes_behind_a_request_do_not_break_its_answer() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0 + b"\x00\x01garbage\r\n\r\n")
        server.answer(b"fine")
        first, second = transport.written.split(b"fine")
        assert first.startswith(b"HTTP/1.1 200")
        assert second.startswith(b"HTTP/1.1 400")
        assert transport.eof_written
        assert server.refused == [400]

    run(scenario)


def test_the_answer_to_a_closing_request_closes() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        server.answer(b"bye")
        assert b"connection: close" in transport.written
        assert transport.closed

    run(scenario)


def test_a_stream_to_http_1_0_ends_with_the_connection() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        connection.start(200, b"")
        connection.write(b"part")
        connection.end(b"last")
        assert transport.written.endswith(b"\r\n\r\npartlast")
        assert transport.closed

    run(scenario)


def test_a_stream_is_chunked() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        connection.start(200, b"x: y\r\n")
        assert transport.written == b"", "the head goes out with the first part"
        connection.write(b"part")
        connection.end(b"last")
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert b"x: y" in head
        assert body == b"4\r\npart\r\n4\r\nlast\r\n0\r\n\r\n"
        assert connection.phase == "idle"

    run(scenario)


def test_the_answer_to_head_has_no_body() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        server.answer(b"12345")
        assert b"content-length: 5" in transport.written
        assert transport.written.endswith(b"\r\n\r\n")

    run(scenario)


def test_continue_is_sent_when_it_is_the_requests_turn() -> None:
    async def scenario(server: Server) -> None:
        connection, transport = server.connect()
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        connection.data_received(GET % 0 + head)
        assert b"100 Continue" not in transport.written
        server.answer(b"first")
        assert transport.written.endswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.data_received(b"hi")
        assert server.answer(b"second").body == b"hi"

    run(scenario)


@pytest.mark.parametrize(
    ("sent", "seconds", "expected"),
    [
        pytest.param(b"", 11, b"HTTP/1.1 408", id="not a byte"),
        pytest.param(b"GET / HT", 11, b"HTTP/1.1 408", id="half a head"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",
            21,
            b"HTTP/1.1 408",
            id="half a body",
        ),
        pytest.param(b"GET / HT", 9, b"", id="a head in time"),
    ],
)
def test_a_slow_request_is_given_up(sent: bytes, seconds: float, expected: bytes) -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        if sent:
            connection.data_received(sent)
        server.pass_time(seconds)
        assert transport.written[: len(expected)] == expected
        assert transport.eof_written is bool(expected)
        server.pass_time(3)
        assert transport.aborted is bool(expected), "nobody may linger for ever"

    run(scenario)


def test_dribbled_head_bytes_do_not_extend_the_deadline() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        for byte in b"GET / HTTP/1.1":
            connection.data_received(bytes([byte]))
            server.pass_time(1)
        assert transport.written.startswith(b"HTTP/1.1 408")

    run(scenario)


def test_an_idle_connection_is_closed_without_a_word() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        server.answer(b"")
        before = transport.written
        server.pass_time(41)
        assert transport.closed
        assert transport.written == before

    run(scenario)


def test_an_answer_may_take_as_long_as_it_takes() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        server.pass_time(10_000)
        assert not transport.closed

    run(scenario)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        connection.start(200, b"")
        connection.write(b"x")
        connection.pause_writing()
        assert connection.slow
        server.pass_time(29)
        assert not transport.closed
        server.pass_time(2)
        assert transport.aborted

    run(scenario)


def test_a_client_that_reads_no_answer_is_asked_for_no_more_work() -> None:
    async def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0 + GET % 1)
        connection.pause_writing()
        server.answer(b"")
        await asyncio.sleep(0)
        assert not server.pending
        connection.data_received(GET % 2)
        assert not server.pending
        reading = [transport.reading]
        connection.resume_writing()
        for index in (1, 2):
            await asyncio.sleep(0)
            assert server.answer(b"").target == b"/%d" % index
        assert connection.phase == "idle"
        assert [*reading, transport.reading] == [False, True]
        connection.pause_writing()
        connection.data_received(GET % 3)
        server.pass_time(30)
        assert transport.aborted
        assert not server.pending

    run(scenario)


def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        transport.unread_bytes = 100
        connection.pause_writing()
        for unread in (80, 60, 40):
            transport.unread_bytes = unread
            server.pass_time(31)
            assert not transport.closed
        server.pass_time(31)
        assert transport.aborted, "it has read nothing since"

    run(scenario)


def test_a_client_that_reads_on_is_not_cut_off() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        connection.pause_writing()
        connection.resume_writing()
        server.pass_time(1000)
        assert not transport.closed

    run(scenario)


def test_one_connection_too_many_is_told_so() -> None:
    def scenario(server: Server) -> None:
        kept = [server.connect() for _ in range(4)]
        connection, transport = server.connect()
        assert transport.written.startswith(b"HTTP/1.1 503")
        assert not any(t.written for _, t in kept)
        connection.connection_lost(None)
        kept[0][0].connection_lost(None)
        _, transport = server.connect()
        assert transport.written == b""

    run(scenario)


def test_bodies_held_over_all_connections_are_bounded_and_given_back() -> None:
    def scenario(server: Server) -> None:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n" + b"a" * 90
        first, _ = server.connect()
        first.data_received(post)
        second, transport = server.connect()
        second.data_received(post)
        assert transport.written.startswith(b"HTTP/1.1 503")
        second.connection_lost(None)
        server.answer(b"")
        assert server.listener.held_bytes == 0
        third, transport = server.connect()
        third.data_received(post)
        assert len(server.pending) == 1
        third.connection_lost(None)
        assert server.listener.held_bytes == 0

    run(scenario)


def test_the_owner_is_told_that_the_client_left() -> None:
    class Owner:
        gone = 0

        def client_gone(self) -> None:
            self.gone += 1

        def client_ready(self) -> None:
            raise AssertionError

    def scenario(server: Server) -> None:
        connection, _ = server.connect()
        connection.data_received(GET % 0)
        owner = connection.owner = Owner()
        connection.connection_lost(None)
        connection.respond(200, b"", b"too late")
        assert owner.gone == 1

    run(scenario)


def test_draining_closes_each_connection_after_its_answer() -> None:
    def scenario(server: Server) -> None:
        idle, idle_transport = server.connect()
        idle.data_received(GET % 0)
        server.answer(b"")
        busy, busy_transport = server.connect()
        busy.data_received(GET % 0)
        server.listener.drain()
        assert idle_transport.closed
        assert not busy_transport.closed
        server.answer(b"done")
        assert b"connection: close" in busy_transport.written
        assert busy_transport.closed

    run(scenario)


def test_a_stream_begun_before_draining_closes_at_its_end() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        connection.start(200, b"")
        connection.write(b"part")
        server.listener.drain()
        connection.end()
        assert transport.closed

    run(scenario)


def test_no_content_has_no_length() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(GET % 0)
        connection.respond(204, b"", b"")
        assert b"content-length" not in transport.written

    run(scenario)


def test_an_http_1_0_client_is_not_told_to_continue() -> None:
    def scenario(server: Server) -> None:
        connection, transport = server.connect()
        connection.data_received(
            b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert transport.written == b""

    run(scenario)


def test_a_body_that_is_not_needed_any_more_is_given_back() -> None:
    def scenario(server: Server) -> None:
        connection, _ = server.connect()
        connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
        assert server.listener.held_bytes == 2
        connection.release_body()
        assert server.listener.held_bytes == 0
        server.answer(b"")
        assert server.listener.held_bytes == 0

    run(scenario)
