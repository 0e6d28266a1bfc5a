"""Listener on a real socket: deadlines that hold whatever happens, also before TLS is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from mileage.gateway.config import ServerConfig
from mileage.wire import listener as module
from mileage.wire.listener import HttpListener
from mileage.wire.server import ServerConnection
from tests.support.certificate import write_certificate

WITHIN_S = 60.0


def listening(
    check: Callable[[HttpListener, int], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None = None,
    **limits: float,
) -> None:
    """Run the check beside a listener on a free port of loopback."""

    async def main() -> None:
        listener = HttpListener(
            msgspec.structs.replace(ServerConfig(), **limits),
            lambda request, connection: connection.respond(200, b"", b"hi"),
            error_body=lambda status, message: message.encode(),
        )
        with socket.create_server(("127.0.0.1", 0)) as sock:
            sock.setblocking(False)
            await listener.start(sock, tls)
            try:
                async with asyncio.timeout(WITHIN_S):
                    await check(listener, sock.getsockname()[1])
            finally:
                await listener.stop()

    asyncio.run(main())


def read_to_the_end(port: int) -> None:
    """Connect, say nothing, and wait for the other side to end it."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as client,
        contextlib.suppress(ConnectionResetError),
    ):
        while client.recv(4096):
            pass


def test_a_client_that_never_begins_its_tls_handshake_is_cut_off(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_certificate(tmp_path))

    async def check(listener: HttpListener, port: int) -> None:
        started_s = time.monotonic()
        await asyncio.to_thread(read_to_the_end, port)
        assert 0.2 <= time.monotonic() - started_s < WITHIN_S

    listening(check, tls=context, header_timeout_s=0.2)


def test_one_connection_that_cannot_be_closed_does_not_end_the_deadlines_of_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_SWEEP_S", 0.02)
    expire = ServerConnection.expire
    failed: list[ServerConnection] = []

    def fail_first(connection: ServerConnection) -> None:
        if not failed:
            failed.append(connection)
            raise RuntimeError("the first one fails")
        expire(connection)

    monkeypatch.setattr(ServerConnection, "expire", fail_first)

    async def check(listener: HttpListener, port: int) -> None:
        for _ in range(3):
            await asyncio.to_thread(read_to_the_end, port)

    with caplog.at_level(logging.ERROR):
        listening(check, header_timeout_s=0.05, idle_timeout_s=0.05)
    assert len(failed) == 1
    assert "the first one fails" in caplog.text
