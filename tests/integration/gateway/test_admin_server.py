"""The admin plane on a real socket: starts and stops as a guest, and cuts off who holds places."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mileage.core.errors import ConfigError
from mileage.gateway.admin import server as admin_server
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.admin.server import AdminServer, bind_admin, serve_admin
from tests.support.admin_plane import TOKEN, AdminPlane
from tests.support.certificate import write_certificate

LOCAL = AdminConfig(port=0)
WAIT_S = 60.0
EVENTS_REQUEST = (
    f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
).encode()


@contextlib.asynccontextmanager
async def served(config: AdminConfig = LOCAL) -> AsyncIterator[tuple[AdminPlane, AdminServer]]:
    plane = AdminPlane(config)
    server = await serve_admin(plane.app, config)
    try:
        yield plane, server
    finally:
        await server.stop()


async def ask(
    port: int, target: str, *, headers: str = "", tls: ssl.SSLContext | None = None
) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    writer.write(request.encode())
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S)
    finally:
        writer.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Read to the end of the connection, however it ends."""
    content = b""
    with contextlib.suppress(ConnectionError):
        while chunk := await asyncio.wait_for(reader.read(65_536), WAIT_S):
            content += chunk
    return content


def test_it_serves_on_the_port_it_tells() -> None:
    async def run() -> None:
        async with served() as (_, server):
            assert server.url == f"http://127.0.0.1:{server.port}/"
            answer = await ask(server.port, "/healthz")
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b'{"status":"ok"}')
            assert b"uvicorn" not in answer

    asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "url"),
    [
        pytest.param("localhost", "http://localhost:{}/", id="a name"),
        pytest.param("[::1]", "http://[::1]:{}/", id="an IPv6 address"),
        pytest.param("0.0.0.0", "http://127.0.0.1:{}/", id="every address"),
        pytest.param("::", "http://[::1]:{}/", id="every IPv6 address"),
    ],
)
def test_its_url_is_one_that_a_browser_can_open(host: str, url: str) -> None:
    async def run() -> None:
        async with served(AdminConfig(host=host, port=0, allow_remote=True)) as (_, server):
            assert server.url == url.format(server.port)
            reader, writer = await asyncio.open_connection(
                server.url.split("/")[2].rpartition(":")[0].strip("[]"), server.port
            )
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await until_closed(reader)
            writer.close()

    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    asyncio.run(run())


def test_it_is_a_guest_in_its_process(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        handlers = list(logging.getLogger().handlers)
        async with served() as (_, server):
            await ask(server.port, "/metrics")
            await ask(server.port, "bad target \x00")
            assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
        assert logging.getLogger().handlers == handlers
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_stopping_ends_live_streams_and_frees_the_port() -> None:
    async def run() -> None:
        async with served() as (plane, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(EVENTS_REQUEST)
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
            plane.advance(1)
            assert b"event: update" in await asyncio.wait_for(
                reader.readuntil(b"event: update"), WAIT_S
            )
            await server.stop()
            await until_closed(reader)
            writer.close()
            again = bind_admin(AdminConfig(port=server.port))
            again.close()

    asyncio.run(run())


def test_a_port_in_use_is_named() -> None:
    with contextlib.closing(bind_admin(LOCAL)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="another process listens") as caught:
            bind_admin(AdminConfig(port=port))
        assert (caught.value.key, caught.value.value) == ("admin.port", port)


def test_a_host_that_is_not_ours_is_named() -> None:
    foreign = AdminConfig(host="192.0.2.1", allow_remote=True, port=0)
    with pytest.raises(ConfigError, match=r"admin\.host.*an address of this machine"):
        bind_admin(foreign)


def test_a_socket_bound_before_is_taken_over() -> None:
    async def run() -> None:
        sock = bind_admin(LOCAL)
        port = sock.getsockname()[1]
        server = await serve_admin(AdminPlane().app, LOCAL, sock=sock)
        assert server.port == port
        assert b"200 OK" in await ask(port, "/healthz")
        await server.stop()
        assert sock.fileno() == -1

    asyncio.run(run())


def test_tls_is_served_where_it_is_configured(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    config = AdminConfig(port=0, tls_cert=str(certificate), tls_key=str(key))
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.check_hostname = False

    async def run() -> None:
        async with served(config) as (_, server):
            assert server.url.startswith("https://")
            assert b"200 OK" in await ask(server.port, "/healthz", tls=trusting)

    asyncio.run(run())


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_bad_certificate_is_named_and_the_port_is_free_again(
    tmp_path: Path, content: str
) -> None:
    certificate = tmp_path / "c.pem"
    if content:
        certificate.write_text(content)
    config = AdminConfig(port=0, tls_cert=str(certificate), tls_key=str(certificate))

    async def run() -> None:
        sock = bind_admin(config)
        with pytest.raises(ConfigError) as caught:
            await serve_admin(AdminPlane().app, config, sock=sock)
        assert caught.value.key == "admin.tls_cert"
        assert sock.fileno() == -1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("first", "sent"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"", b"GET /healthz HTTP/1.1\r\nHost: lo", id="half a header"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /", id="half a second one"
        ),
    ],
)
def test_a_request_that_does_not_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, first: bytes, sent: bytes
) -> None:
    monkeypatch.setattr(admin_server, "_REQUEST_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with served() as (_, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            if first:
                writer.write(first)
                await asyncio.wait_for(reader.readuntil(b"}"), WAIT_S)
            writer.write(sent)
            await until_closed(reader)
            writer.close()

    asyncio.run(run())


def test_a_stream_that_is_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "_STALL_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with served() as (plane, server), asyncio.timeout(WAIT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(EVENTS_REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            # From here on nothing is read, and both sides' buffers fill up.
            while plane.app.hub.subscribers:
                plane.app.hub.publish(b"x" * 1_000_000)
                await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(run())


def test_connections_past_the_bound_are_refused() -> None:
    config = AdminConfig(port=0, connections_max=3)

    async def run() -> None:
        async with served(config) as (_, server):
            held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
            assert b"503" in await ask(server.port, "/healthz")
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            answers = []
            for _ in range(200):
                answers.append(await ask(server.port, "/healthz"))
                if b"200 OK" in answers[-1]:
                    break
                await asyncio.sleep(0.01)
            assert b"200 OK" in answers[-1]

    asyncio.run(run())
