"""Weights into the page cache while the engine still imports: read in chunks, within the memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

__all__ = ["Preloaded", "memory_available_bytes", "preload"]

_CHUNK_BYTES: Final = 8 * 1024 * 1024
_LOOK_BYTES: Final = 256 * 1024 * 1024
"""Between two looks at the memory."""
_CGROUP: Final = Path("/sys/fs/cgroup")


class Preloaded(msgspec.Struct, frozen=True, kw_only=True):
    """What was read; `stopped` says why not all of it was, None where it was.

    Files that were in memory before are read all the same, at memory's speed.
    """

    files: int
    bytes: int
    bytes_total: int
    seconds: float
    stopped: str | None = None


def preload(
    paths: Sequence[Path],
    *,
    reserve_bytes: int,
    stop: threading.Event,
    available: Callable[[], int] = lambda: memory_available_bytes(),
    look_bytes: int = _LOOK_BYTES,
) -> Preloaded:
    """Read the files, one after the other, into a buffer that is used again.

    Nothing is read of weights that do not fit beside the reserve: what came first would be gone
    before the engine reads it. Ends early where the memory falls to the reserve, and at `stop`.
    """
    begun_s = time.monotonic()
    read = files = 0
    try:
        total = sum(path.stat().st_size for path in paths)
        if (stopped := _too_large(total, available(), reserve_bytes)) is None:
            buffer = memoryview(bytearray(_CHUNK_BYTES))
            due = look_bytes
            for path in paths:
                with path.open("rb", buffering=0) as file:
                    _read_ahead(file.fileno())
                    while stopped is None and (count := file.readinto(buffer)):
                        read += count
                        if stop.is_set():
                            stopped = "the engine has ended, or does not need it any more"
                        elif read >= due:
                            due += look_bytes
                            stopped = _short(available(), reserve_bytes)
                if stopped is not None:
                    break
                files += 1
    except OSError as error:
        total, stopped = read, f"cannot be read: {error.filename}: {error.strerror}"
    return Preloaded(
        files=files,
        bytes=read,
        bytes_total=total,
        seconds=time.monotonic() - begun_s,
        stopped=stopped,
    )


def memory_available_bytes() -> int:
    """What can be taken without swapping: of the machine, and of the container's limit."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        pairs = (line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        cached = next(int(value) for name, value in pairs if name == "inactive_file")
    except (OSError, ValueError, StopIteration):
        return available  # no container, or one without a limit ("max")
    return min(available, max(0, limit - used + cached))


def _too_large(total: int, available: int, reserve: int) -> str | None:
    if total <= available - reserve:
        return None
    return (
        f"{_gib(total)} GiB of weights do not fit: {_gib(available)} GiB of memory are available, "
        f"of which {_gib(reserve)} GiB are kept free"
    )


def _short(available: int, reserve: int) -> str | None:
    if available >= reserve:
        return None
    return f"{_gib(available)} GiB of memory are left, {_gib(reserve)} GiB are kept free"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f}"


def _read_ahead(descriptor: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
