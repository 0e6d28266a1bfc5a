"""Fetches public traces into the cache: whole and checked, or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO, Final

from mileage.cli.trace_catalogue import DataSet
from mileage.cli.trace_lines import Progress, file_lines
from mileage.cli.whole_file import whole_file
from mileage.core.errors import ConfigError, FileError, MileageError
from mileage.engines.embedded.web_source import OpenUrl, SourceError, redact
from mileage.workload.read_options import ReadOptions
from mileage.workload.source import read_trace

__all__ = ["fetch_trace"]

_CHUNK_BYTES: Final = 1 << 18
_UNKNOWN_BYTES_MAX: Final = 8 << 30


def fetch_trace(
    name: str,
    known: DataSet,
    directory: Path,
    *,
    open_url: OpenUrl,
    progress: Progress,
    url: str | None = None,
) -> Path:
    """The file in `directory`, fetched there where it is not yet (or not as it should be).

    `url` is another place that has it. The file appears under its name only when all of it is there
    and has the size and SHA-256 that are known; where none is known, its beginning must be that of
    a trace. Raises FileError, which says what to do without a network, and ConfigError for a
    directory that cannot be.
    """
    target = directory / known.file_name
    source = url or known.url
    if _is_there(target, known):
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        expected = f"a directory that can be made ({error.strerror or error})"
        raise ConfigError("--directory", str(directory), expected) from None
    try:
        with whole_file(target, key="--directory") as file:
            _receive(name, known, source, file, open_url, progress)
            if known.sha256 is None:
                file.flush()
                _check_begins(Path(file.name), source)
    except SourceError as error:
        raise FileError(
            name,
            f"cannot be fetched: {redact(source)}: {error}. Without a network, put the file at"
            f" {target}",
        ) from None
    return target


def _is_there(target: Path, known: DataSet) -> bool:
    """The file is in the cache, as it should be. Raises FileError."""
    try:
        return target.is_file() and (known.sha256 is None or _digest(target) == known.sha256)
    except OSError as error:
        raise FileError(str(target), f"cannot be read: {error.strerror or error}") from None


def _receive(
    name: str,
    known: DataSet,
    url: str,
    file: BinaryIO,
    open_url: OpenUrl,
    progress: Progress,
) -> None:
    digest, size = hashlib.sha256(), 0
    most = known.size_bytes if known.size_bytes is not None else _UNKNOWN_BYTES_MAX
    answer = open_url(url)
    try:
        while chunk := answer.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > most:
                raise SourceError(f"sent more than {most} bytes", retryable=False)
            digest.update(chunk)
            file.write(chunk)
            progress(f"fetching {name}", size, known.size_bytes)
    finally:
        answer.close()
    if known.size_bytes is not None and size != known.size_bytes:
        message = f"ended after {size} of {known.size_bytes} bytes"
        raise SourceError(message, retryable=True)
    if known.sha256 is not None and digest.hexdigest() != known.sha256:
        message = f"sent content with the SHA-256 {digest.hexdigest()}, not {known.sha256}"
        raise SourceError(message, retryable=False)


def _check_begins(path: Path, url: str) -> None:
    """The first record can be read; a page that says what went wrong is no trace."""
    try:
        next(read_trace(file_lines(path), path=redact(url), options=ReadOptions(reorder_places=1)))
    except (MileageError, StopIteration) as error:
        raise SourceError(f"sent what is no trace ({error})", retryable=False) from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
