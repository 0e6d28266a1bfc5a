"""HostCache: adapter files kept in this machine's memory, so that a load reads no disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["HostCache"]

_CHUNK = 1 << 20


class HostCache:
    """Reads files into the kernel's cache, and has it fetch again what it has let go since.

    They are not mapped: a page that is gone, as another program has cut the file or its server does
    not answer, would end the process.

    Not thread-safe: one call at a time. Files that cannot be read are left out: their load tells
    why.
    """

    def __init__(self) -> None:
        self._kept: dict[Path, os.stat_result] = {}

    @property
    def bytes(self) -> int:
        """Of all files that are kept."""
        return sum(stat.st_size for stat in self._kept.values())

    def keep(self, paths: Iterable[Path], bytes_max: int) -> None:
        """Keep the first of these that fit, and drop all others. A directory is its files."""
        wanted: dict[Path, os.stat_result] = {}
        left = bytes_max
        for path in paths:
            files = _files(path)
            size = sum(stat.st_size for stat in files.values())
            if 0 < size <= left:
                wanted.update(files)
                left -= size
        known, self._kept = self._kept, {}
        for path, stat in wanted.items():
            with contextlib.suppress(OSError):
                _read(path, again=path in known and _same(known[path], stat))
                self._kept[path] = stat

    def clear(self) -> None:
        """Keep nothing any more."""
        self._kept = {}


def _files(path: Path) -> dict[Path, os.stat_result]:
    """The files of a path with their sizes; none where it cannot be read."""
    try:
        if not path.is_dir():
            return {path: path.stat()}
        return {each: each.stat() for each in sorted(path.iterdir()) if each.is_file()}
    except OSError:
        return {}


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (
        other.st_ino,
        other.st_size,
        other.st_mtime_ns,
    )


def _read(path: Path, *, again: bool) -> None:
    with path.open("rb", buffering=0) as file:
        if again and hasattr(os, "posix_fadvise"):  # reads nothing that is there
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            return
        buffer = bytearray(_CHUNK)
        while file.readinto(buffer):
            pass
