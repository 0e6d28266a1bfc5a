"""Journal files: a directory per worker, numbered segments in it, and who writes them."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import ConfigError

__all__ = [
    "JournalFile",
    "create_journal_file",
    "find_journals",
    "journal_files",
    "remove_oldest",
    "worker_directory",
]

_NAME: Final = re.compile(r"(\d{6,12})\.mjl")
_WORKER: Final = re.compile(r"worker-(\d{1,4})")


class JournalFile(msgspec.Struct, frozen=True, order=True):
    """One segment; `sequence` counts up over all runs of its worker."""

    sequence: int
    path: Path


def worker_directory(directory: Path, worker: int) -> Path:
    """Where the worker's segments are."""
    return directory / f"worker-{worker}"


def journal_files(directory: Path) -> list[JournalFile]:
    """The segments in one worker's directory, oldest first. Raises OSError."""
    found = []
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name)
        if match:
            found.append(JournalFile(int(match[1]), directory / name))
    return sorted(found)


def create_journal_file(directory: Path, sequence: int, header: bytes) -> int:
    """Create a segment that holds its header, locked by us; its file descriptor.

    It gets its name last, so whoever sees an unlocked one knows that its writer is done or dead.
    Raises OSError; then nothing is left behind.
    """
    early = directory / f".{sequence:06d}.mjl.new"
    early.unlink(missing_ok=True)  # of a writer that died here; the directory is ours now
    fd = os.open(early, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_all(fd, header)
        early.rename(directory / f"{sequence:06d}.mjl")
    except BaseException:
        os.close(fd)
        early.unlink(missing_ok=True)
        raise
    return fd


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write the data whole. Raises OSError; part of it may then be written."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def remove_oldest(files: Sequence[JournalFile], room_bytes: int) -> None:
    """Delete the oldest, until the others take at most `room_bytes`. Raises OSError."""
    sizes = [file.path.stat().st_size for file in files]
    total = sum(sizes)
    for file, size in zip(files, sizes, strict=True):
        if total <= room_bytes:
            return
        file.path.unlink(missing_ok=True)
        total -= size


def find_journals(paths: Sequence[Path]) -> list[list[JournalFile]]:
    """The segments that the paths mean, those of each worker together, oldest first.

    A path is a journal directory, one worker's directory or a single segment. Raises ConfigError
    for one that is nothing of that kind; a directory without segments gives none.
    """
    by_directory: dict[Path, set[JournalFile]] = {}
    for path in paths:
        for file in _files_of(path):
            by_directory.setdefault(file.path.parent.resolve(), set()).add(file)
    return [sorted(files) for _, files in sorted(by_directory.items(), key=_worker_order)]


def _worker_order(item: tuple[Path, object]) -> tuple[str, int, str]:
    path = item[0]
    match = _WORKER.fullmatch(path.name)
    return str(path.parent), int(match[1]) if match else -1, path.name


def _files_of(path: Path) -> list[JournalFile]:
    try:
        if path.is_dir():
            workers = [p for p in path.iterdir() if _WORKER.fullmatch(p.name) and p.is_dir()]
            return [f for directory in (path, *workers) for f in journal_files(directory)]
        path.stat()
    except OSError as error:
        expected = f"a journal directory or a segment ({error.strerror})"
        raise ConfigError("PATH", str(path), expected) from None
    match = _NAME.fullmatch(path.name)
    return [JournalFile(int(match[1]) if match else 0, path)]
