"""StandIn: another program's HTTP interface, played in a thread of the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

__all__ = ["Asked", "Reply", "StandIn", "json_reply"]

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; names of headers are in lower case, `path` is with its query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered; its length is told besides."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(status: int, document: Any) -> Reply:
    """A document."""
    return Reply(status, json.dumps(document).encode(), {"content-type": "application/json"})


class StandIn:
    """Listens on a free port of the loopback inside of `with`; one subclass per interface."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port of it."""
        return self._server.server_port

    def reply(self, asked: Asked) -> Reply:
        """The answer; several may be asked for at once, each in a thread of its own."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler_of(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = stand_in.reply(Asked(self.command, self.path, headers, body))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        do_GET = do_HEAD = do_POST = _answer  # noqa: N815 -- the library's names

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it would be in the way of the test's own output."""

    return Handler
