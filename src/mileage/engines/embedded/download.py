"""Fetches one file of known size and checksum; goes on where an earlier attempt broke off."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from mileage.engines.embedded.model_cache import Progress, write_failure
from mileage.engines.embedded.web_source import ByteSource, OpenUrl, SourceError

__all__ = ["PinnedFile", "download", "matches"]

_CHUNK_BYTES = 1 << 20
_FRUITLESS_MAX = 4
"""Attempts in a row that bring no byte."""
_PAUSE_S = 0.5


class PinnedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that can only be one: whoever serves it, its content is known."""

    name: str
    size: int
    sha256: str


def download(
    pinned: PinnedFile,
    url: str,
    directory: Path,
    *,
    open_url: OpenUrl,
    progress: Progress,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch `url` into `directory` and return the complete, checked file.

    A broken transfer leaves NAME.part, and the next call, in this process or a later one, fetches
    only the rest. Raises SourceError where the URL does not give the pinned content, ModelFileError
    where the file cannot be written (what was there is then removed).
    """
    target = directory / pinned.name
    partial = directory / f"{pinned.name}.part"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        resumed = partial.exists()
        _fill(pinned, url, partial, open_url, progress, sleep)
        if resumed and not matches(pinned, partial):
            # The part from an earlier attempt may have been the bad one.
            partial.unlink()
            _fill(pinned, url, partial, open_url, progress, sleep)
        if not matches(pinned, partial):
            partial.unlink()
            raise SourceError("sent content whose checksum is wrong", retryable=False)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise write_failure(target, error) from error
    return target


def matches(pinned: PinnedFile, path: Path) -> bool:
    """Whether the file has the pinned size and checksum."""
    if path.stat().st_size != pinned.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == pinned.sha256


def _fill(
    pinned: PinnedFile,
    url: str,
    partial: Path,
    open_url: OpenUrl,
    progress: Progress,
    sleep: Callable[[float], None],
) -> None:
    """Bring the partial file to its full size."""
    fruitless = 0
    with partial.open("ab") as file:
        if file.tell() > pinned.size:
            file.truncate(0)
        while (had := file.tell()) < pinned.size:
            try:
                source = open_url(url, start=had)
                try:
                    _append(pinned, source, file, progress)
                finally:
                    source.close()
            except SourceError as error:
                fruitless = 0 if file.tell() > had else fruitless + 1
                if not error.retryable or fruitless >= _FRUITLESS_MAX:
                    raise
                sleep(_PAUSE_S * 2**fruitless)


def _append(pinned: PinnedFile, source: ByteSource, file: BinaryIO, progress: Progress) -> None:
    if source.start != file.tell():
        file.truncate(source.start)
        file.seek(0, 2)
    while chunk := source.read(_CHUNK_BYTES):
        if file.tell() + len(chunk) > pinned.size:
            raise SourceError(f"sent more than {pinned.size} bytes", retryable=False)
        file.write(chunk)
        progress(f"fetching {pinned.name}", file.tell(), pinned.size)
    file.flush()
    if file.tell() < pinned.size:
        raise SourceError(f"ended after {file.tell()} of {pinned.size} bytes", retryable=True)
