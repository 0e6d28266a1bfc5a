"""Calls an ASGI application without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Scope

__all__ = ["Answer", "call", "scope_of"]


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """The body, which is JSON."""
        return msgspec.json.decode(self.body)


def scope_of(method: str, target: str, headers: Mapping[str, str]) -> Scope:
    """The scope of a request; `host` is localhost unless it is given."""
    path, _, query = target.partition("?")
    fields = {"host": "localhost:8081", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in fields.items() if v],
        "client": ("127.0.0.1", 40_000),
        "server": ("127.0.0.1", 8081),
    }


def call(
    app: ASGIApp,
    target: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """Make one request and return the whole answer; an empty header value leaves it out."""
    messages: list[Message] = []
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return requests.pop(0) if requests else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    async def run() -> None:
        await app(scope_of(method, target, headers or {}), receive, send)

    asyncio.run(run())
    start = messages[0]
    content = b"".join(message.get("body", b"") for message in messages[1:])
    return Answer(start["status"], Headers(raw=list(start["headers"])), content)
