"""SleepingServer: answers over HTTP as a vLLM with sleep mode does, and notes misuse."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

__all__ = ["SleepingServer"]

_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "llama",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}


class SleepingServer:
    """`chats` it has answered; `misused`: what it was asked in its sleep, or without mode=keep."""

    def __init__(self, *, asleep: bool = False) -> None:
        self.asleep = asleep
        self.chats = self.sleeps = self.wakes = 0
        self.misused: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and document for a request."""
        name, _, query = path.partition("?")
        if name == "/is_sleeping":
            return 200, {"is_sleeping": self.asleep}
        if name == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "llama", "object": "model"}]}
        if name == "/health":
            return 200, {}
        if name == "/sleep":
            if "mode=keep" not in query:
                self.misused.append(path)
            self.asleep, self.sleeps = True, self.sleeps + 1
            return 200, {}
        if name == "/wake_up":
            self.asleep, self.wakes = False, self.wakes + 1
            return 200, {}
        if name == "/v1/chat/completions":
            if self.asleep:
                self.misused.append(path)
            self.chats += 1
            return 200, _ANSWER
        return 404, {"detail": "Not Found"}

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


def _handler_of(server: SleepingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, document = server.answer(self.path)
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
