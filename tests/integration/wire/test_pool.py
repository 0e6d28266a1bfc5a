"""Connections to an engine: kept alive, retried when stale, broken in every way, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mileage.wire.pool import UpstreamPool
from mileage.wire.upstream import BreakKind, Carrier
from tests.support.certificate import write_certificate

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LIMIT_S = 10


class Sink:
    """Keeps what it is told; `ended` is set at the end, good or bad."""

    def __init__(self) -> None:
        self.upstream: Carrier | None = None
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.broken: tuple[str, str] | None = None
        self.ended = asyncio.Event()
        self.part = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status, self.headers = status, headers

    def body_received(self, data: bytes, now_s: float) -> None:
        self.parts.append(data)
        self.part.set()

    def answer_ended(self, data: bytes, now_s: float) -> None:
        self.parts.append(data)
        self.ended.set()

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        self.broken = (kind, message)
        self.ended.set()


class Engine:
    """A server whose connections are served by the test's own function."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[bytes] = []
        self.errors: list[BaseException] = []

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        data = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(data)
        return data


@contextlib.asynccontextmanager
async def engine(
    serve: Callable[[Engine], Serve], tls: ssl.SSLContext | None = None, **limits: Any
) -> AsyncIterator[Any]:
    state = Engine()
    served: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(state)(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        served.add(asyncio.get_running_loop().create_task(handle(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    options = {"connections_max": 10, "connect_timeout_s": 5.0, "response_timeout_s": 5.0} | limits
    pool = UpstreamPool(f"{'https' if tls else 'http'}://127.0.0.1:{port}", **options)
    pool.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield state, pool
    finally:
        pool.stop()
        server.close()
        await asyncio.wait_for(asyncio.gather(*served), LIMIT_S)


async def ask(pool: UpstreamPool) -> Sink:
    sink = Sink()
    pool.send(REQUEST, sink, asyncio.get_running_loop().time())
    await sink.ended.wait()
    return sink


def answers(*parts: bytes) -> Callable[[Engine], Serve]:
    """Serve every request of a connection with the same bytes, then close."""

    def serve(state: Engine) -> Serve:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await state.head(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()

        return one

    return serve


def keeps_alive(state: Engine) -> Serve:
    async def loop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.head(reader)
            writer.write(ANSWER)

    return loop


def test_a_connection_is_used_again() -> None:
    async def main() -> None:
        async with engine(keeps_alive) as (state, pool):
            for _ in range(5):
                sink = await ask(pool)
                assert (sink.status, sink.body, sink.broken) == (200, b"ok", None)
            assert state.connections == 1

    asyncio.run(main())


def test_requests_at_once_have_a_connection_each() -> None:
    async def main() -> None:
        async with engine(keeps_alive) as (state, pool):
            sinks = await asyncio.gather(*(ask(pool) for _ in range(5)))
            assert [s.body for s in sinks] == [b"ok"] * 5
            assert state.connections == 5

    asyncio.run(main())


def test_a_stale_connection_is_replaced_without_a_word() -> None:
    def closes_at_the_second(state: Engine) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await state.head(reader)
            writer.write(ANSWER)
            await state.head(reader)  # and no answer: closed as the request came

        return serve

    async def main() -> None:
        async with engine(closes_at_the_second) as (state, pool):
            for _ in range(3):
                assert (await ask(pool)).body == b"ok"
            assert state.connections == 3

    asyncio.run(main())


def test_a_fresh_connection_that_breaks_is_not_tried_again() -> None:
    async def main() -> None:
        async with engine(answers()) as (state, pool):
            sink = await ask(pool)
            assert sink.broken is not None
            assert sink.broken[0] == "broken"
            assert state.connections == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("parts", "status", "body", "kind"),
    [
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", b"0\r\n\r\n"],
            200,
            b"ok",
            None,
            id="chunked",
        ),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", b"o", b"k"], 200, b"ok", None, id="until close"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], 204, b"", None, id="no content"),
        pytest.param(
            [b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER], 200, b"ok", None, id="interim answer"
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"], 200, b"hal", "broken", id="half"
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"],
            200,
            b"ok",
            "broken",
            id="chunked without its end",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
            200,
            b"",
            "broken",
            id="bad chunk",
        ),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], None, b"", "broken", id="no HTTP"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000], None, b"", "broken", id="endless"
        ),
    ],
)
def test_answers(parts: list[bytes], status: int | None, body: bytes, kind: str | None) -> None:
    async def main() -> None:
        async with engine(answers(*parts)) as (_, pool):
            sink = await ask(pool)
            assert (sink.status, sink.body) == (status, body)
            assert (sink.broken and sink.broken[0]) == kind

    asyncio.run(main())


@pytest.mark.parametrize("trusted", [True, False])
def test_a_private_authority_is_trusted_through_ssl_cert_file(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = write_certificate(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def main() -> None:
        async with engine(keeps_alive, tls=context) as (_, pool):
            sink = await ask(pool)
            if trusted:
                assert (sink.status, sink.body) == (200, b"ok")
            else:
                assert sink.broken is not None
                assert sink.broken[0] == "connect"
                assert "certificate verify failed" in sink.broken[1]

    asyncio.run(main())


def test_nobody_listens() -> None:
    async def main() -> None:
        async with engine(keeps_alive) as (_, pool):
            pool._port = 1
            sink = await ask(pool)
            assert sink.broken is not None
            assert sink.broken[0] == "connect"

    asyncio.run(main())


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("a" * 64 + ".test", id="a label too long for a host name"),
        pytest.param("a..test", id="an empty label"),
        pytest.param("a\0b", id="a NUL"),
    ],
)
def test_what_is_no_host_name_is_no_connection(host: str) -> None:
    async def main() -> None:
        async with engine(keeps_alive, connections_max=1) as (_, pool):
            pool._host = host
            for _ in range(2):
                sink = await ask(pool)
                assert sink.broken is not None
                assert sink.broken[0] == "connect"
                assert sink.broken[1].startswith("no connection: ")

    asyncio.run(main())


@pytest.mark.parametrize("turns", [0, 1])
def test_a_request_that_is_given_up_before_it_has_a_connection_leaves_no_trace(turns: int) -> None:
    async def main() -> None:
        async with engine(keeps_alive, connections_max=1) as (_, pool):
            for _ in range(3):
                sink = Sink()
                pool.send(REQUEST, sink, 0.0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                assert sink.upstream is not None
                sink.upstream.abort()
                await asyncio.sleep(0.01)
                assert not sink.ended.is_set()
            assert (await ask(pool)).body == b"ok", "its place in the pool is free again"

    asyncio.run(main())


def test_a_request_that_is_given_up_at_the_limit_is_told_nothing() -> None:
    async def main() -> None:
        async with engine(keeps_alive, connections_max=1) as (_, pool):
            first, second = Sink(), Sink()
            pool.send(REQUEST, first, asyncio.get_running_loop().time())
            pool.send(REQUEST, second, asyncio.get_running_loop().time())
            assert second.upstream is not None
            second.upstream.abort()
            await first.ended.wait()
            assert first.body == b"ok"
            assert second.broken is None

    asyncio.run(main())


def test_no_connection_is_made_after_the_end() -> None:
    async def main() -> None:
        async with engine(keeps_alive) as (state, pool):
            sink = Sink()
            pool.send(REQUEST, sink, asyncio.get_running_loop().time())
            await asyncio.sleep(0)
            pool.stop()
            await asyncio.sleep(0.05)
            assert (state.heads, sink.ended.is_set()) == ([], False)

    asyncio.run(main())


def silent(state: Engine) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.head(reader)
        await reader.read()

    return serve


def test_an_error_at_one_timeout_does_not_end_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Raises(Sink):
        def answer_broken(self, kind: BreakKind, message: str) -> None:
            super().answer_broken(kind, message)
            raise RuntimeError("a bug of the sink's")

    async def main() -> None:
        async with engine(silent, response_timeout_s=0.05) as (_, pool):
            for _ in range(2):
                sinks = [Raises(), Sink(), Raises()]
                for sink in sinks:
                    pool.send(REQUEST, sink, asyncio.get_running_loop().time())
                for sink in sinks:
                    await sink.ended.wait()
                    assert sink.broken is not None
                    assert sink.broken[0] == "timeout"

    asyncio.run(main())
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["a bug of the sink's"] * 4


def test_a_silent_engine_is_given_up() -> None:
    async def main() -> None:
        async with engine(silent, response_timeout_s=0.2) as (_, pool):
            sink = await ask(pool)
            assert sink.broken is not None
            assert sink.broken[0] == "timeout"
            assert "0.2" in sink.broken[1]

    asyncio.run(main())


def test_connections_are_bounded() -> None:
    async def main() -> None:
        async with engine(keeps_alive, connections_max=1) as (_, pool):
            one, two = await asyncio.gather(ask(pool), ask(pool))
            assert one.body == b"ok"
            assert two.broken == ("busy", "all 1 connections are in use")

    asyncio.run(main())


def test_a_stale_connection_is_replaced_also_at_the_limit() -> None:
    def closes_at_the_second(state: Engine) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await state.head(reader)
            writer.write(ANSWER)
            await state.head(reader)

        return serve

    async def main() -> None:
        async with engine(closes_at_the_second, connections_max=1) as (state, pool):
            for _ in range(3):
                sink = await ask(pool)
                assert (sink.body, sink.broken) == (b"ok", None)
            assert state.connections == 3

    asyncio.run(main())


def test_giving_up_closes_the_connection() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        def endless(state: Engine) -> Serve:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await state.head(reader)
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
                await reader.read()
                gone.set()

            return serve

        async with engine(endless) as (_, pool):
            sink = Sink()
            pool.send(REQUEST, sink, asyncio.get_running_loop().time())
            await sink.part.wait()
            kept = [connection.request for connection in pool._open]
            assert kept == [b""], "it is not kept in memory for the whole generation"
            assert sink.upstream is not None
            sink.upstream.abort()
            await gone.wait()
            assert not sink.ended.is_set(), "nothing more comes to a sink that gave up"

    asyncio.run(main())


def test_a_paused_answer_waits_in_the_engine() -> None:
    async def main() -> None:
        sent = 0
        stalled = asyncio.Event()

        def pours(state: Engine) -> Serve:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal sent
                await state.head(reader)
                total = 32 * 1024 * 1024
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
                while sent < total:
                    writer.write(b"x" * 65_536)
                    sent += 65_536
                    try:
                        async with asyncio.timeout(0.2):
                            await writer.drain()
                    except TimeoutError:
                        stalled.set()
                        await writer.drain()

            return serve

        async with engine(pours) as (_, pool):
            sink = Sink()
            pool.send(REQUEST, sink, asyncio.get_running_loop().time())
            await sink.part.wait()
            assert sink.upstream is not None
            sink.upstream.pause()
            await stalled.wait()
            assert sent < 24 * 1024 * 1024, "what is in the sockets' buffers, not the whole"
            sink.upstream.resume()
            await sink.ended.wait()
            assert len(sink.body) == 32 * 1024 * 1024

    asyncio.run(main())
