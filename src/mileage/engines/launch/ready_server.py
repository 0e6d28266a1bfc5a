"""The readiness endpoint: 503 until the engine has given a token, and again once it has died."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.wire.listener import HttpListener
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection

__all__ = ["ReadyServer"]

_HEAD: Final = b"content-type: application/json\r\n"


class _Limits(msgspec.Struct, frozen=True):
    """Probes are few and small."""

    connections_max: int = 64
    headers_max: int = 64
    header_bytes_max: int = 16_384
    body_bytes_max: int = 4096
    buffer_bytes_max: int = 1 << 20
    pipeline_max: int = 4
    header_timeout_s: float = 10.0
    body_timeout_s: float = 10.0
    write_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0


class ReadyServer:
    """Serves GET /ready (200 or 503, with the same document) and /live (200) at `host`:`port`.

    `state` returns whether it is ready, and what is known.
    """

    def __init__(self, host: str, port: int, state: Callable[[], tuple[bool, object]]) -> None:
        self._state = state
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            expected = f"an address that is free ({getattr(error, 'strerror', None) or error})"
            raise ConfigError("--ready-port", f"{host}:{port}", expected) from None
        self.port = int(self._socket.getsockname()[1])
        self._listener = HttpListener(_Limits(), self._answer, error_body=_error)

    async def start(self) -> None:
        """Answer from now on."""
        self._socket.listen()
        await self._listener.start(self._socket)

    async def stop(self) -> None:
        """Answer no more; without `start` the port alone is given back."""
        await self._listener.stop()
        self._socket.close()

    def _answer(self, request: HttpRequest, connection: ServerConnection) -> None:
        path = request.target.partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            connection.respond(405, _HEAD, _error(405, "only GET and HEAD"))
        elif path == b"/live":
            connection.respond(200, _HEAD, b'{"live":true}')
        elif path == b"/ready":
            ready, document = self._state()
            connection.respond(200 if ready else 503, _HEAD, msgspec.json.encode(document))
        else:
            connection.respond(404, _HEAD, _error(404, "only /ready and /live"))


def _error(status: int, message: str) -> bytes:
    return msgspec.json.encode({"error": {"code": status, "message": message}})
