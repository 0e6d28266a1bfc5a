"""ControlMiddleware: /mileage/control and the queue limit in vLLM's API server (pure ASGI).

Added by the endpoint plugin; a vLLM without endpoint plugins takes it by
`--middleware mileage.vllm_plugin.control_app.ControlMiddleware`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.policy.engine_knobs import ControlDocument, decode_control_request
from mileage.vllm_plugin.control_server import ControlServer
from mileage.vllm_plugin.control_token import control_token
from mileage.vllm_plugin.inference_paths import INFERENCE_SOCKETS, inference_posts
from mileage.vllm_plugin.queue_limit import QueueLimit

__all__ = ["CONTROL_PATH", "ControlMiddleware"]

CONTROL_PATH: Final = "/mileage/control"

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("vllm.mileage")
_BODY_MAX: Final = 64 * 1024
_REFRESH_S: Final = 1.0
_MARK: Final = "mileage.control"
_SOCKET_REFUSED: Final = 1013
"""Close code of a WebSocket: try again later."""
_HTTP_ANSWER: Final = "websocket.http.response"
"""What a server calls it that it can answer a WebSocket's handshake otherwise than by 403."""


class ControlMiddleware:
    """Answers /mileage/control, and refuses requests beyond the queue limit; passes on the rest.

    Without a token it does nothing: see `control_token`.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._token = control_token(os.environ)
        self._queue = QueueLimit()
        self._posts: frozenset[str] | None = None
        self._server: ControlServer | None = None
        self._refreshing: asyncio.Task[ControlDocument] | None = None
        self._looked_s = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of any kind."""
        kind = scope["type"]
        if self._token is None or kind not in ("http", "websocket") or _MARK in scope:
            await self._app(scope, receive, send)
            return
        scope[_MARK] = True
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if kind == "websocket":
            bounded = path in INFERENCE_SOCKETS
        elif path == CONTROL_PATH:
            await self._control(scope, receive, send)
            return
        else:
            if self._posts is None:
                self._posts = inference_posts(scope.get("app"))
            bounded = scope["method"] == "POST" and path in self._posts
        await (self._inference if bounded else self._app)(scope, receive, send)

    async def _inference(self, scope: Scope, receive: Receive, send: Send) -> None:
        most, running = self._most(scope)
        if not self._queue.enter(most):
            await self._refuse_full(scope, receive, send, self._queue.retry_after_s(running))
            return
        began_s = time.monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            self._queue.leave(time.monotonic() - began_s)

    async def _refuse_full(self, scope: Scope, receive: Receive, send: Send, after_s: int) -> None:
        if scope["type"] == "websocket":
            await receive()  # its connect
            if _HTTP_ANSWER not in (scope.get("extensions") or ()):
                await send({"type": "websocket.close", "code": _SOCKET_REFUSED})
                return
            send = _as_http_answer(send)
        headers = [(b"retry-after", str(after_s).encode())]
        message = "the queue is full (waiting_max): try again later"
        await _refuse(send, 503, message, code="queue_full", headers=headers)

    def _most(self, scope: Scope) -> tuple[int | None, int]:
        """Requests that may be in flight here (None: any number), and those that run of them."""
        now_s, servers = time.monotonic(), _api_servers(scope)
        if servers > 1:
            self._follow(scope, now_s)
        server = self._server
        if server is None:
            return None, 1
        waiting_max, running = server.queue_limit(now_s)
        if waiting_max is None:
            return None, running
        return -(-(running + waiting_max) // servers), running

    def _follow(self, scope: Scope, now_s: float) -> None:
        """What was asked of another server process is known to the engines only: ask them.

        A request does not wait for their answer, which comes between two steps.
        """
        known_s = float("-inf") if self._server is None else self._server.known_s
        if now_s - max(self._looked_s, known_s) < _REFRESH_S:
            return
        self._looked_s = now_s
        try:
            server = self._server_of(scope)
        except EngineError:
            return  # it has no engine: nothing waits
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(server.document())
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._token is not None
        if not _authorized(scope["headers"], self._token):
            message = "a wrong token, or none: Authorization: Bearer TOKEN of MILEAGE_CONTROL_TOKEN"
            headers = [(b"www-authenticate", b"Bearer")]
            await _refuse(send, 401, message, code="wrong_token", headers=headers)
            return
        if scope["method"] not in ("GET", "POST"):
            headers = [(b"allow", b"GET, POST")]
            await _refuse(send, 405, "GET or POST", code="method_not_allowed", headers=headers)
            return
        try:
            server = self._server_of(scope)
            if scope["method"] == "GET":
                found = await server.document()
            else:
                found = await server.change(decode_control_request(await _body(receive)))
        except ConfigError as error:
            await _refuse(send, 400, str(error), code="invalid_request", param=error.key)
        except EngineError as error:
            await _refuse(send, 503, str(error), code="engine_error")
        else:
            await _answer(send, 200, msgspec.json.encode(found))

    def _server_of(self, scope: Scope) -> ControlServer:
        """The engines of this server. Raises EngineError where there are none."""
        if self._server is None:
            client = getattr(scope["app"].state, "engine_client", None)
            if client is None:
                raise EngineError("vllm", "this server has no engine")
            self._server = ControlServer(client, _engine_version())
        return self._server


def _engine_version() -> str:
    try:
        from vllm.version import __version__ as version
    except ImportError:
        return "unknown"
    return str(version)


def _api_servers(scope: Scope) -> int:
    """How many server processes there are: as the engine's client knows it, in older versions as
    the command line has it, which not every way to start vLLM goes by."""
    state = getattr(scope.get("app"), "state", None)
    config = getattr(getattr(state, "engine_client", None), "vllm_config", None)
    count = getattr(getattr(config, "parallel_config", None), "_api_process_count", None)
    if count is None:
        count = getattr(getattr(state, "args", None), "api_server_count", None)
    return count if isinstance(count, int) and count > 1 else 1


def _authorized(headers: Iterable[tuple[bytes, bytes]], token: bytes) -> bool:
    given = b""
    for name, value in headers:
        if name.lower() == b"authorization":
            scheme, _, rest = value.partition(b" ")
            given = rest.strip() if scheme.lower() == b"bearer" else b""
    return bool(hmac.compare_digest(given, token))


async def _body(receive: Receive) -> bytes:
    """The request's body. Raises ConfigError where it is too large, or breaks off."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConfigError("body", "", "a whole request")
        body += bytes(message.get("body", b""))
        if len(body) > _BODY_MAX:
            raise ConfigError("body", f"{len(body)} bytes", f"up to {_BODY_MAX}")
        if not message.get("more_body", False):
            return body


def _as_http_answer(send: Send) -> Send:
    async def renamed(message: MutableMapping[str, Any]) -> None:
        kind = str(message["type"]).replace("http.response", _HTTP_ANSWER, 1)
        await send({**message, "type": kind})

    return renamed


async def _refuse(
    send: Send,
    status: int,
    message: str,
    *,
    code: str,
    param: str | None = None,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    document = {"error": {"message": message, "code": code, "param": param}}
    await _answer(send, status, msgspec.json.encode(document), headers)


async def _answer(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    length = str(len(body)).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
