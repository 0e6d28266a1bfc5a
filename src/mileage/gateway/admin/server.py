"""Server of the admin plane: uvicorn as a guest in a running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mileage.core.errors import ConfigError
from mileage.gateway.admin.app import AdminApp
from mileage.gateway.admin.config import AdminConfig

__all__ = ["AdminServer", "bind_admin", "serve_admin"]

_REQUEST_TIMEOUT_S = 10.0
_STALL_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 2


class AdminServer:
    """A running admin plane. `port` is the one really bound, `url` where a browser finds it."""

    def __init__(self, app: AdminApp, config: AdminConfig, server: _Server, port: int) -> None:
        self.port, self.url = port, _url(config, port)
        self._app, self._server = app, server
        self._tasks: list[asyncio.Task[None]] = []

    async def stop(self) -> None:
        """Close the socket, end the live streams, and wait for what is under way, but not long."""
        self._app.hub.close()
        self._server.should_exit = True
        serving, ticking = self._tasks
        ticking.cancel()
        await asyncio.gather(serving, ticking, return_exceptions=True)

    def _start(self, sock: socket.socket) -> None:
        self._tasks = [
            asyncio.create_task(self._server.serve([sock]), name="admin-server"),
            asyncio.create_task(self._app.run(), name="admin-tick"),
        ]


async def serve_admin(
    app: AdminApp, config: AdminConfig, *, sock: socket.socket | None = None
) -> AdminServer:
    """Start serving and return at once. Takes over `sock`, else binds as configured.

    Leaves signal handlers and the logging set-up alone. Raises ConfigError for an address that
    cannot be bound and for a certificate that cannot be loaded.
    """
    bound = sock if sock is not None else bind_admin(config)
    try:
        server = _Server(_uvicorn_config(app, config))
    except BaseException:
        bound.close()
        raise
    admin = AdminServer(app, config, server, bound.getsockname()[1])
    admin._start(bound)
    serving = admin._tasks[0]
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        started.cancel()
        await admin.stop()
        serving.result()
    return admin


def bind_admin(config: AdminConfig) -> socket.socket:
    """A listening socket for the configured address; raises ConfigError that names the key."""
    host = config.host.strip("[]")
    try:
        found = socket.getaddrinfo(
            host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            "admin.host", config.host, f"an address of this machine ({error})"
        ) from error
    # localhost may mean ::1 first; IPv4 is what people type.
    family, kind, protocol, _, address = sorted(found, key=lambda each: each[0] != socket.AF_INET)[
        0
    ]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _bind_error(config, error) from error
    return sock


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it listens and leaves the process's signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Protocol(H11Protocol):
    """Closes connections that hold a place for nothing: a request that does not get finished, or
    an answer that is not taken."""

    _arriving: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(_STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def _expect(self) -> None:
        """Start the request's clock with its first byte, and stop it when its headers are here."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        elif not answering and self._arriving is None:
            self._arriving = self.loop.call_later(_REQUEST_TIMEOUT_S, self._expire)

    def _expire(self) -> None:
        self._arriving = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _cancel(self) -> None:
        for timer in (self._arriving, self._stalled):
            if timer is not None:
                timer.cancel()


def _uvicorn_config(app: AdminApp, config: AdminConfig) -> uvicorn.Config:
    made = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level=logging.CRITICAL,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=config.connections_max,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        **_tls(config),
    )
    try:
        made.load()
    except (OSError, ssl.SSLError) as error:
        expected = f"a PEM certificate and its key in admin.tls_key ({error})"
        raise ConfigError("admin.tls_cert", config.tls_cert, expected) from error
    return made


def _url(config: AdminConfig, port: int) -> str:
    """The plane's address; of one that is bound to every address, the local one."""
    host = config.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    scheme = "http" if config.tls_cert is None else "https"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"


def _tls(config: AdminConfig) -> dict[str, Any]:
    if config.tls_cert is None:
        return {}
    return {"ssl_certfile": config.tls_cert, "ssl_keyfile": config.tls_key}


def _bind_error(config: AdminConfig, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        expected = f"a free port on {config.host}; another process listens on this one"
        return ConfigError("admin.port", config.port, expected)
    if error.errno == errno.EACCES:
        return ConfigError("admin.port", config.port, "a port that this user may bind (1024 or up)")
    return ConfigError("admin.host", config.host, f"an address of this machine ({error.strerror})")
