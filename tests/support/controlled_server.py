"""ControlledServer: answers a governing gateway over HTTP as a vLLM with Mileage's plugin does."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from mileage.vllm_plugin.control_app import CONTROL_PATH
from tests.support.knob_site import KnobSite

__all__ = ["ControlledServer"]


class ControlledServer:
    """The site's engine behind a socket; it has one model, and answers no generations."""

    def __init__(self, site: KnobSite) -> None:
        self.site = site
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        """Status and document."""
        if path == CONTROL_PATH:
            with self._lock:
                asked = self.site.site.ask(method, path, headers=headers, body=body)
                return asyncio.run(asked)[:2]
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "llama", "object": "model"}]}
        return (200, {}) if path == "/health" else (404, {"detail": "Not Found"})

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
        self._server.server_close()
        self._thread.join()


def _handler_of(server: ControlledServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, document = server.answer(self.command, self.path, headers, sent)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 -- the library's names

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it would be in the way of the test's own output."""

    return Handler
