"""mileage trace fetch against a real server on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from mileage.cli.trace_catalogue import DataSet
from mileage.cli.trace_fetch import fetch_trace
from mileage.core.errors import FileError
from mileage.engines.embedded.web_source import WebSettings, WebSource
from tests.support.file_limit import file_size_limit
from tests.support.loopback_server import Answer, LoopbackServer, Reset, Seen, http
from tests.support.traces import AZURE_FILE, PINNED


def fetched(
    answers: dict[str, Answer], path: str, directory: Path, known: DataSet = PINNED
) -> Path:
    async def run() -> Path:
        def answer(seen: Seen) -> Answer:
            return answers[seen.target]

        async with LoopbackServer(answer) as server:
            return await asyncio.to_thread(
                fetch_trace,
                "name",
                replace(known, url=f"{server.url}{path}"),
                directory,
                open_url=WebSource(WebSettings(timeout_s=60.0)),
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
        pytest.param(
            http(302, headers=["Location: /trace.csv"]), "infinite loop. The last", id="a loop"
        ),
        pytest.param(http(503), "HTTP 503", id="not now"),
        pytest.param(http(404, b"no"), "HTTP 404", id="not there"),
        pytest.param(http(200, AZURE_FILE[:-3]), "ended after", id="short"),
        pytest.param(http(200, AZURE_FILE)[:-3], "3 bytes of the answer are missing", id="cut"),
        pytest.param(
            Reset(http(200, AZURE_FILE)[:-10]), "cannot be fetched", id="the connection broke"
        ),
    ],
)
def test_a_server_that_fails(tmp_path: Path, answer: Answer, message: str) -> None:
    with pytest.raises(FileError, match=message):
        fetched({"/trace.csv": answer}, "/trace.csv", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_nothing_is_known_of_is_not_kept_in_part(tmp_path: Path) -> None:
    known = replace(PINNED, size_bytes=None, sha256=None)
    whole = http(200, AZURE_FILE)
    with pytest.raises(FileError, match="40 bytes of the answer are missing"):
        fetched({"/trace.csv": whole[:-40]}, "/trace.csv", tmp_path, known)
    assert list(tmp_path.iterdir()) == []
    assert fetched({"/trace.csv": whole}, "/trace.csv", tmp_path, known).read_bytes() == AZURE_FILE


def test_a_full_disk(tmp_path: Path) -> None:
    with file_size_limit(50), pytest.raises(FileError, match=r"trace\.csv: cannot be written: "):
        fetched({"/trace.csv": http(200, AZURE_FILE)}, "/trace.csv", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Connection refused"):
        fetch_trace(
            "name",
            replace(PINNED, url="http://127.0.0.1:9/trace.csv"),
            tmp_path,
            open_url=WebSource(WebSettings(timeout_s=60.0)),
            progress=lambda *_: None,
        )
