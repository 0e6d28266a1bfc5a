"""Fetching traces: checked and whole, or nothing at all."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from mileage.cli.trace_catalogue import CATALOGUE, DataSet, fetched_path, trace_directory
from mileage.cli.trace_fetch import fetch_trace
from mileage.cli.trace_source import open_trace
from mileage.core.errors import ConfigError, FileError
from mileage.engines.embedded.web_source import SourceError
from tests.support.traces import AZURE, AZURE_FILE, PINNED

UNKNOWN = replace(PINNED, size_bytes=None, sha256=None)


class Web:
    """Answers with a body, or breaks."""

    def __init__(self, body: bytes, *, breaks: bool = False) -> None:
        self.body, self.breaks = body, breaks
        self.asked: list[str] = []
        self.start, self.content_type, self.url = 0, "text/csv", ""

    def __call__(self, url: str, *, start: int = 0, accept: str = "*/*") -> Web:
        self.asked.append(url)
        return self

    def read(self, count: int) -> bytes:
        if self.breaks:
            raise SourceError("Name or service not known", retryable=False)
        body, self.body = self.body[:count], self.body[count:]
        return body

    def close(self) -> None:
        pass


def fetch(directory: Path, web: Web, known: DataSet = PINNED, url: str | None = None) -> Path:
    return fetch_trace("name", known, directory, open_url=web, progress=lambda *_: None, url=url)


@pytest.mark.parametrize("known", [PINNED, UNKNOWN])
def test_a_file_is_fetched_once(tmp_path: Path, known: DataSet) -> None:
    web = Web(AZURE_FILE)
    path = fetch(tmp_path / "traces", web, known)
    assert path.read_bytes() == AZURE_FILE
    assert fetch(tmp_path / "traces", web, known) == path
    assert web.asked == [PINNED.url]
    with open_trace(str(path)) as trace:
        assert len(list(trace)) == 3


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(AZURE_FILE[:-1])
    assert fetch(tmp_path, Web(AZURE_FILE)).read_bytes() == AZURE_FILE


def test_a_mirror_is_asked_instead(tmp_path: Path) -> None:
    web = Web(AZURE_FILE)
    fetch(tmp_path, web, url="https://mirror.example.org/x")
    assert web.asked == ["https://mirror.example.org/x"]


@pytest.mark.parametrize(
    ("web", "known", "message"),
    [
        pytest.param(
            Web(AZURE_FILE, breaks=True), PINNED, "Without a network, put the file", id="offline"
        ),
        pytest.param(Web(AZURE_FILE[:-1]), PINNED, "ended after", id="cut off"),
        pytest.param(Web(AZURE_FILE + b"1"), PINNED, "more than", id="longer"),
        pytest.param(Web(b"x" * len(AZURE_FILE)), PINNED, "SHA-256", id="another content"),
        pytest.param(Web(b"<html>sign in</html>"), UNKNOWN, "no trace", id="a page"),
        pytest.param(Web(b""), UNKNOWN, "no trace", id="nothing"),
        pytest.param(Web(AZURE[0] + b"\n1,2"), UNKNOWN, "no trace", id="a bad first record"),
    ],
)
def test_what_is_not_the_trace_is_not_kept(
    tmp_path: Path, web: Web, known: DataSet, message: str
) -> None:
    with pytest.raises(FileError, match=message):
        fetch(tmp_path, web, known)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--directory: .* \(File exists\)"):
        fetch(tmp_path / "file", Web(AZURE_FILE))
    (tmp_path / "trace.csv").mkdir()
    with pytest.raises(ConfigError, match=r"--directory: .* this is a directory"):
        fetch(tmp_path, Web(AZURE_FILE), UNKNOWN)


def test_names_are_traces_once_they_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEAGE_CACHE_DIR", str(tmp_path))
    path = fetched_path("azure-code-2023")
    assert path == tmp_path / "traces" / "AzureLLMInferenceTrace_code.csv"
    assert path.parent == trace_directory({"MILEAGE_CACHE_DIR": str(tmp_path)})
    path.parent.mkdir()
    path.write_bytes(AZURE_FILE)
    with open_trace("azure-code-2023") as trace:
        assert len(list(trace)) == 3


def test_the_catalogue_is_in_order() -> None:
    names = [known.file_name for known in CATALOGUE.values()]
    assert len(set(names)) == len(names)
    for known in CATALOGUE.values():
        assert known.url.startswith("https://")
        assert known.sha256 is None or len(known.sha256) == 64


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("azure-conv-2023", "azure_conv_2023.csv.gz"),
        ("mooncake-conversation", "mooncake_conversation.jsonl.gz"),
    ],
)
def test_recorded_traces_have_the_checksums_of_the_catalogue(
    data_dir: Path, name: str, recorded: str
) -> None:
    content = gzip.decompress((data_dir / "traces" / recorded).read_bytes())
    known = CATALOGUE[name]
    assert (len(content), hashlib.sha256(content).hexdigest()) == (known.size_bytes, known.sha256)
