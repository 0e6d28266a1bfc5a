"""mileage trace fetch against a real server on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from mileage.cli.trace_fetch import fetch_trace
from mileage.core.errors import FileError
from mileage.engines.embedded.web_source import WebSettings, WebSource
from tests.support.loopback_server import Answer, LoopbackServer, Reset, Seen, http
from tests.support.traces import AZURE_FILE, PINNED


def fetched(answers: dict[str, Answer], path: str, directory: Path) -> Path:
    async def run() -> Path:
        def answer(seen: Seen) -> Answer:
            return answers[seen.target]

        async with LoopbackServer(answer) as server:
            return await asyncio.to_thread(
                fetch_trace,
                "name",
                replace(PINNED, url=f"{server.url}{path}"),
                directory,
                open_url=WebSource(WebSettings(timeout_s=5.0)),
                progress=lambda *_: None,
            )

    return asyncio.run(run())


def test_a_file_behind_a_redirect(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "/trace.csv": http(302, headers=["Location: /elsewhere"]),
        "/elsewhere": http(200, AZURE_FILE),
    }
    assert fetched(answers, "/trace.csv", tmp_path).read_bytes() == AZURE_FILE


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(http(404, b"no"), "HTTP 404", id="not there"),
        pytest.param(http(200, AZURE_FILE[:-3]), "ended after", id="short"),
        pytest.param(
            Reset(http(200, AZURE_FILE)[:-10]), "cannot be fetched", id="the connection broke"
        ),
    ],
)
def test_a_server_that_fails(tmp_path: Path, answer: Answer, message: str) -> None:
    with pytest.raises(FileError, match=message):
        fetched({"/trace.csv": answer}, "/trace.csv", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Connection refused"):
        fetch_trace(
            "name",
            replace(PINNED, url="http://127.0.0.1:9/trace.csv"),
            tmp_path,
            open_url=WebSource(WebSettings(timeout_s=5.0)),
            progress=lambda *_: None,
        )
