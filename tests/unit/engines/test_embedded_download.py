"""Downloads: resumed where they broke off, checked, and without a half file in place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mileage.core.errors import ModelFileError
from mileage.engines.embedded.download import PinnedFile, download, matches
from mileage.engines.embedded.web_source import SourceError

CONTENT = bytes(range(256)) * 40
PINNED = PinnedFile(name="m.whl", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


class Server:
    """An OpenUrl of one content; answers break after as many bytes as `breaks` says in turn."""

    def __init__(
        self, content: bytes = CONTENT, breaks: tuple[int, ...] = (), ranges: bool = True
    ) -> None:
        self.content, self.breaks, self.ranges = content, list(breaks), ranges
        self.starts: list[int] = []

    def __call__(self, url: str, *, start: int = 0, accept: str = "*/*") -> Answer:
        self.starts.append(start)
        return Answer(
            self.content, start if self.ranges else 0, self.breaks.pop(0) if self.breaks else None
        )


class Answer:
    """A ByteSource that breaks after some bytes."""

    content_type, url = "application/octet-stream", "http://test/m.whl"

    def __init__(self, content: bytes, start: int, left: int | None) -> None:
        self.start = self._at = start
        self._content, self._left = content, left

    def read(self, count: int) -> bytes:
        if self._left == 0:
            raise SourceError("the connection broke", retryable=True)
        size = min(count, 1000) if self._left is None else min(count, 1000, self._left)
        data = self._content[self._at : self._at + size]
        self._at += len(data)
        if self._left is not None:
            self._left -= len(data)
        return data

    def close(self) -> None:
        pass


def refused(url: str, *, start: int = 0, accept: str = "*/*") -> Answer:
    raise SourceError("Connection refused", retryable=True)


def fetch(
    directory: Path, server: Callable[..., Answer], pauses: list[float] | None = None
) -> tuple[Path, list[int]]:
    """Download with a server; returns the file and the byte counts that were shown."""
    shown: list[int] = []
    path = download(
        PINNED,
        "http://test/m.whl",
        directory,
        open_url=server,
        progress=lambda label, done, total: shown.append(done),
        sleep=(pauses if pauses is not None else []).append,
    )
    return path, shown


def test_a_file_is_fetched_and_shown(tmp_path: Path) -> None:
    path, shown = fetch(tmp_path / "new", Server())
    assert path.read_bytes() == CONTENT
    assert shown[-1] == len(CONTENT)
    assert shown == sorted(shown)
    assert [p.name for p in path.parent.iterdir()] == ["m.whl"]


def test_a_broken_transfer_goes_on_where_it_broke(tmp_path: Path) -> None:
    server, pauses = Server(breaks=(3000, 2500)), list[float]()
    path, _ = fetch(tmp_path, server, pauses)
    assert path.read_bytes() == CONTENT
    assert server.starts == [0, 3000, 5500]
    assert len(pauses) == 2


def test_a_later_run_fetches_only_the_rest(tmp_path: Path) -> None:
    (tmp_path / "m.whl.part").write_bytes(CONTENT[:7000])
    server = Server()
    path, _ = fetch(tmp_path, server)
    assert server.starts == [7000]
    assert path.read_bytes() == CONTENT


def test_a_server_without_ranges_is_read_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "m.whl.part").write_bytes(CONTENT[:7000])
    path, _ = fetch(tmp_path, Server(ranges=False))
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(bytes(7000), id="a part of something else"),
        pytest.param(bytes(len(CONTENT)), id="whole, but with wrong content"),
        pytest.param(bytes(len(CONTENT) + 1), id="longer than the file can be"),
    ],
)
def test_a_bad_rest_is_fetched_anew(tmp_path: Path, rest: bytes) -> None:
    (tmp_path / "m.whl.part").write_bytes(rest)
    path, _ = fetch(tmp_path, Server())
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("server", "message"),
    [
        pytest.param(Server(bytes(len(CONTENT))), "checksum", id="other content"),
        pytest.param(Server(CONTENT + b"x"), "more than", id="more bytes"),
        pytest.param(Server(CONTENT[:-1]), "ended after", id="fewer bytes, again and again"),
        pytest.param(refused, "refused", id="no connection"),
    ],
)
def test_wrong_content_never_gets_the_name(
    tmp_path: Path, server: Callable[..., Answer], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        fetch(tmp_path, server)
    assert not (tmp_path / "m.whl").exists()


def test_wrong_content_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        fetch(tmp_path, Server(bytes(len(CONTENT))))
    assert list(tmp_path.iterdir()) == []


def test_tries_end_when_they_bring_nothing(tmp_path: Path) -> None:
    pauses: list[float] = []
    with pytest.raises(SourceError, match="refused"):
        fetch(tmp_path, refused, pauses)
    assert pauses == sorted(pauses)
    assert len(pauses) == 3


def test_what_cannot_pass_is_not_tried_again(tmp_path: Path) -> None:
    def forbidden(url: str, *, start: int = 0, accept: str = "*/*") -> Answer:
        raise SourceError("HTTP 403", retryable=False)

    pauses: list[float] = []
    with pytest.raises(SourceError, match="403"):
        fetch(tmp_path, forbidden, pauses)
    assert pauses == []


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.whl.part").symlink_to("/dev/full")
    with pytest.raises(ModelFileError, match=r"m\.whl: .*no space left"):
        fetch(tmp_path, Server())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(CONTENT, True, id="the content"),
        pytest.param(CONTENT[:-1] + b"!", False, id="one byte differs"),
        pytest.param(CONTENT[:-1], False, id="one byte short"),
    ],
)
def test_matches(tmp_path: Path, content: bytes, expected: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert matches(PINNED, path) is expected
