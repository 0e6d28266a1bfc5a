"""Engines' pages in a directory of `mileage doctor record`: a folder for each engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.whole_file import whole_file
from mileage.core.errors import ConfigError
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.kept_record import kept_record
from mileage.doctor.redact import Redactor

__all__ = ["read_engines", "write_engines"]

ENGINES_MAX: Final = 64
BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all that is kept of all engines."""
_FOLDER: Final = "engine-"
_INDEX: Final = "engine.json"


class _Page(msgspec.Struct, frozen=True):
    at_s: float
    at_utc_s: float
    path: str
    file: str


class _Index(msgspec.Struct, frozen=True):
    """An engine's record, with its pages as files that people can read."""

    url: str
    pages: list[_Page]
    answers: dict[str, str] = {}
    missing: dict[str, str] = {}


def write_engines(directory: Path, records: Sequence[EngineRecord], redactor: Redactor) -> None:
    """Write what each engine answered, without secrets. Raises ConfigError and FileError."""
    kept = records[:ENGINES_MAX]
    for number, record in enumerate(kept, start=1):
        clean = kept_record(record, redactor, bytes_max=BYTES_MAX // len(kept))
        folder = directory / f"{_FOLDER}{number}"
        try:
            folder.mkdir()
        except OSError as error:
            raise ConfigError("--to", str(folder), f"a directory ({error.strerror})") from None
        pages = [
            _Page(page.at_s, page.at_utc_s, page.path, f"page-{place:02d}.txt")
            for place, page in enumerate(clean.pages, start=1)
        ]
        for page, written in zip(pages, clean.pages, strict=True):
            with whole_file(folder / page.file, key="--to") as file:
                file.write(written.text.encode())
        index = _Index(clean.url, pages, clean.answers, clean.missing)
        with whole_file(folder / _INDEX, key="--to") as file:
            file.write(msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n")


def read_engines(directory: Path) -> list[EngineRecord]:
    """The engines of the directory, in their order; none where there are none.

    Raises:
        ConfigError: a file is not what was written, or all of them are too large.
    """
    records: list[EngineRecord] = []
    room = BYTES_MAX
    for number in range(1, ENGINES_MAX + 1):
        folder = directory / f"{_FOLDER}{number}"
        if not folder.is_dir():
            break
        index = _decoded(folder / _INDEX, room)
        pages: list[RecordedPage] = []
        for page in index.pages:
            text = _read(folder / Path(page.file).name, room).decode("utf-8", "replace")
            room -= len(text)
            pages.append(
                RecordedPage(at_s=page.at_s, at_utc_s=page.at_utc_s, path=page.path, text=text)
            )
        records.append(
            EngineRecord(
                url=index.url, pages=tuple(pages), answers=index.answers, missing=index.missing
            )
        )
    return records


def _decoded(path: Path, room: int) -> _Index:
    try:
        index: Any = msgspec.json.decode(_read(path, room), type=_Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("--dump", str(path), f"what `record` has written ({error})") from None
    assert isinstance(index, _Index)
    return index


def _read(path: Path, room: int) -> bytes:
    try:
        if path.stat().st_size > room:
            raise ConfigError("--dump", str(path), f"at most {BYTES_MAX >> 20} MiB in all")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError("--dump", str(path), f"a file ({error.strerror})") from None
