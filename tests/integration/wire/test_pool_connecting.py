"""Connections to an engine as they are made: trusted, bounded, refused, given up, on loopback."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.support.certificate import write_certificate
from tests.support.pooled_engine import (
    REQUEST,
    Sink,
    ask,
    closes_at_the_second,
    engine,
    keeps_alive,
)


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


def test_connections_are_bounded() -> None:
    async def main() -> None:
        async with engine(keeps_alive, connections_max=1) as (_, pool):
            one, two = await asyncio.gather(ask(pool), ask(pool))
            assert one.body == b"ok"
            assert two.broken == ("busy", "all 1 connections are in use")

    asyncio.run(main())


def test_a_stale_connection_is_replaced_also_at_the_limit() -> None:
    async def main() -> None:
        async with engine(closes_at_the_second, connections_max=1) as (state, pool):
            for _ in range(3):
                sink = await ask(pool)
                assert (sink.body, sink.broken) == (b"ok", None)
            assert state.connections == 3

    asyncio.run(main())
