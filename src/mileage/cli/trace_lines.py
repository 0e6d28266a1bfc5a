"""Lines of a trace file: plain or compressed, read piece by piece, with its progress."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mileage.core.errors import TraceError
from mileage.workload.foreign import foreign_kind

__all__ = ["Progress", "binary_head", "file_lines", "stream_lines"]

Progress = Callable[[str, int, int | None], None]
"""Told (label, bytes done, bytes in all or None)."""

_CHUNK_BYTES: Final = 256 * 1024
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"


def file_lines(path: Path, progress: Progress | None = None) -> Iterator[bytes]:
    """The lines without their ends; what is compressed with gzip is told by its first bytes.

    A pipe is read as it comes. Raises TraceError where the file cannot be read or unpacked, or is
    of a kind that has no lines.
    """
    try:
        with path.open("rb") as raw:
            size = os.fstat(raw.fileno()).st_size
            label = f"reading {path.name}"
            seekable = raw.seekable()

            def report() -> None:
                if progress is not None and seekable:
                    progress(label, raw.tell(), size)

            yield from _unpacked(raw, str(path), report)
    except OSError as error:
        raise TraceError(str(path), 0, f"cannot be read: {error.strerror or error}") from None


def stream_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a stream that is open, such as standard input, as of `file_lines`."""
    try:
        yield from _unpacked(stream, name, lambda: None)
    except OSError as error:
        raise TraceError(name, 0, f"cannot be read: {error.strerror or error}") from None


def binary_head(path: Path, count: int) -> bytes:
    """The first bytes of the file. Raises TraceError."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise TraceError(str(path), 0, f"cannot be read: {error.strerror or error}") from None


def _unpacked(raw: BinaryIO, name: str, report: Callable[[], None]) -> Iterator[bytes]:
    chunks = _chunks(raw)
    head = next(chunks, b"")
    if head.startswith(_GZIP):
        joined = _Joined(head, raw)
        try:
            # What is left out of its interface (seek, tell) is not called for reading.
            yield from _lines(_chunks(gzip.GzipFile(fileobj=joined)), name, report)  # type: ignore[call-overload]
        except EOFError:
            raise TraceError(name, 0, "is damaged: its packed data ends too early") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(name, 0, f"is damaged: {error}") from None
        return
    yield from _lines(_with(head, chunks), name, report)


class _Joined:
    """A stream whose first bytes have been read already."""

    def __init__(self, head: bytes, raw: BinaryIO) -> None:
        self._head, self._raw = head, raw

    def read(self, count: int = -1) -> bytes:
        if self._head:
            data = self._head if count < 0 else self._head[:count]
            self._head = self._head[len(data) :]
            return data
        return self._raw.read(count)


def _chunks(stream: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _with(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from chunks


def _lines(chunks: Iterator[bytes], name: str, report: Callable[[], None]) -> Iterator[bytes]:
    rest = b""
    number = 0
    for chunk in chunks:
        if not number and not rest and (foreign := foreign_kind(chunk)) is not None:
            raise TraceError(name, 0, foreign)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE_BYTES_MAX:
            message = f"is longer than {_LINE_BYTES_MAX} bytes: expected text of lines"
            raise TraceError(name, number + len(lines) + 1, message)
        number += len(lines)
        report()
        yield from lines
    if rest:
        yield rest
    report()
