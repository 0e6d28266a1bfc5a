"""A stand-in for the hub's HTTP interface: files of a directory, OWNER/REPO/REVISION/FILE."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["HubServer"]


class HubServer:
    """Answers /OWNER/REPO/resolve/REVISION/FILE; `asked` are the requests so far."""

    def __init__(self, directory: Path) -> None:
        asked = self.asked = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, *, body: bool) -> None:
                asked.append(f"{self.command} {self.path}")
                owner, repo, _, revision, name = [*self.path.strip("/").split("/", 4), *[""] * 5][
                    :5
                ]
                root = directory / owner / repo
                path = root / revision / name
                code = None if root.is_dir() else "RepoNotFound"
                if code is None and not path.parent.is_dir():
                    code = "RevisionNotFound"
                if code is None and not path.is_file():
                    code = "EntryNotFound"
                self.send_response(200 if code is None else 404)
                data = path.read_bytes() if code is None else b""
                if code is not None:
                    self.send_header("X-Error-Code", code)
                else:
                    self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("X-Repo-Commit", hashlib.sha1(revision.encode()).hexdigest())
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if body:
                    self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

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
