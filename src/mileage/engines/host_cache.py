"""HostCache: adapter files kept in this machine's memory, so that a load reads no disk."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["HostCache"]

_PAGE = mmap.PAGESIZE


class HostCache:
    """Maps files and touches their pages; what was touched lately stays in the kernel's cache.

    Not thread-safe: one call at a time. Files that cannot be read are left out: their load tells
    why.
    """

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[os.stat_result, mmap.mmap]] = {}

    @property
    def bytes(self) -> int:
        """Of all files that are kept."""
        return sum(len(pages) for _, pages in self._kept.values())

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
        for path in [path for path in self._kept if path not in wanted]:
            self._drop(path)
        for path, stat in wanted.items():
            known = self._kept.get(path)
            if known is not None and _same(known[0], stat):
                _touch(known[1])
                continue
            if known is not None:
                self._drop(path)
            with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
                pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                self._kept[path] = (stat, pages)
                pages.madvise(mmap.MADV_WILLNEED)
                _touch(pages)

    def clear(self) -> None:
        """Keep nothing any more."""
        for path in tuple(self._kept):
            self._drop(path)

    def _drop(self, path: Path) -> None:
        self._kept.pop(path)[1].close()


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


def _touch(pages: mmap.mmap) -> None:
    for at in range(0, len(pages), _PAGE):
        pages[at]
