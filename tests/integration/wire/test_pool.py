"""Connections to an engine: kept alive, retried when stale, broken in every way, on loopback."""

from __future__ import annotations

import asyncio

import pytest

from mileage.wire.upstream import BreakKind
from tests.support.pooled_engine import (
    ANSWER,
    REQUEST,
    Engine,
    Serve,
    Sink,
    answers,
    ask,
    closes_at_the_second,
    engine,
    keeps_alive,
    silent,
)


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
    told = [(r.name, str(r.exc_info[1])) for r in caplog.records if r.exc_info]
    assert told == [("mileage.wire.pool", "a bug of the sink's")] * 4


@pytest.mark.parametrize("where", ["head_received", "answer_ended"])
def test_a_sink_that_fails_is_cut_and_no_other_is_harmed(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(Sink):
        pass

    def fails(*_: object) -> None:
        raise RuntimeError("a bug of the sink's")

    monkeypatch.setattr(Fails, where, fails)

    async def main() -> None:
        async with engine(keeps_alive) as (_, pool):
            failing = Fails()
            pool.send(REQUEST, failing, asyncio.get_running_loop().time())
            await failing.ended.wait()
            assert failing.was_cut
            assert (await ask(pool)).body == b"ok"

    asyncio.run(main())
    assert "an answer could not be handled" in caplog.text


def test_a_silent_engine_is_given_up() -> None:
    async def main() -> None:
        async with engine(silent, response_timeout_s=0.2) as (_, pool):
            sink = await ask(pool)
            assert sink.broken is not None
            assert sink.broken[0] == "timeout"
            assert "0.2" in sink.broken[1]

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
