"""Server connections: requests are answered in order, whole or in parts."""

from __future__ import annotations

import asyncio

from tests.support.memory_server import GET, Server, run


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
