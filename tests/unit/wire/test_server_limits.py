"""Server connections: deadlines, limits, slow clients and draining."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.memory_server import GET, Server, run


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
