"""A scripted engine for `mileage engine launch`: prints a log and serves, as it is told.

`python tests/support/launched_engine.py --port P [...]`; needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def main() -> None:
    options = _options()
    if options.environment is not None:
        options.environment.write_text(json.dumps(dict(os.environ)))
    if options.child is not None:  # it ignores what is sent to its parent's group
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        options.child.write_text(str(child.pid))
    if options.log is not None:
        print(options.log.read_text(), flush=True)
    if options.starts is not None:
        with options.starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
    number = 1 if options.starts is None else len(options.starts.read_text().splitlines())
    if options.exit is not None and (
        number == options.exit_in or (options.exit_in is None and number <= options.exits)
    ):
        sys.exit(options.exit)
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    server = ThreadingHTTPServer(("127.0.0.1", options.port), _handler(options))
    server.daemon_threads = True
    server.serve_forever()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, help="text to print at the start")
    parser.add_argument("--child", type=Path, help="start a child that stays, write its id here")
    parser.add_argument("--environment", type=Path, help="write the environment here")
    parser.add_argument("--starts", type=Path, help="add a line here at each start")
    parser.add_argument("--exit", type=int, help="end with this code before serving ...")
    parser.add_argument("--exits", type=int, default=1_000, help="... in the first so many starts")
    parser.add_argument("--exit-in", type=int, help="... or in this start alone, from 1")
    parser.add_argument("--tokens", type=Path, help="503 until this file is there")
    parser.add_argument("--empty", action="store_true", help="answers have no token")
    parser.add_argument("--refuse-over", type=int, default=10_000, help="longer prompts: 400")
    parser.add_argument("--chat-only", action="store_true", help="no /v1/completions")
    parser.add_argument("--api-key", help="401 without it ...")
    parser.add_argument("--other-key", help="... where this is not the one")
    parser.add_argument("--slow-s", type=float, default=0.0, help="of each prompt beside the first")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    return parser.parse_args()


def _handler(options: argparse.Namespace) -> type[BaseHTTPRequestHandler]:
    prompts = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._may():
                self._send(401, {"error": {"message": "another key"}})
            elif self.path == "/health":
                self._send(200, {})
            elif self.path == "/v1/models":
                self._send(200, {"data": [{"id": "toy", "max_model_len": 256}]})
            else:
                self._send(404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/die":
                os._exit(int(body["code"]))
            chat = self.path == "/v1/chat/completions"
            if not self._may():
                self._send(401, {"error": {"message": "another key"}})
            elif options.chat_only and not chat:
                self._send(404, {"error": {"message": "no such path"}})
            elif options.tokens is not None and not options.tokens.exists():
                self._send(503, {"error": {"message": "still loading"}})
            elif not chat and len(body["prompt"]) > options.refuse_over:
                self._send(400, {"error": {"message": "the prompt is too long"}})
            else:
                if next(prompts):
                    time.sleep(options.slow_s)
                text = "" if options.empty else "x"
                choice: dict[str, Any] = (
                    {"text": text} if not chat else {"message": {"content": text}}
                )
                used = 0 if options.empty else 1
                self._send(200, {"choices": [choice], "usage": {"completion_tokens": used}})

        def _may(self) -> bool:
            key = options.other_key or options.api_key
            return key is None or self.headers["authorization"] == f"Bearer {key}"

        def _send(self, status: int, document: object) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


if __name__ == "__main__":
    main()
