"""The cache of model files: where it is, one writer at a time, whole files or none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from mileage.core.errors import ModelFileError

__all__ = [
    "Progress",
    "atomic_file",
    "cache_directory",
    "check_free_space",
    "exclusive",
    "write_failure",
]

_LOCK_POLL_S = 0.2
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Progress(Protocol):
    """Told how far a long step has come; called often, from the thread that does the step."""

    def __call__(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        """`label` names the step; `total_bytes` is None where it is not known."""
        ...


def cache_directory(environ: Mapping[str, str]) -> Path:
    """$MILEAGE_CACHE_DIR, else $XDG_CACHE_HOME/mileage, else ~/.cache/mileage."""
    if own := environ.get("MILEAGE_CACHE_DIR"):
        return Path(own)
    xdg = environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "mileage"


@contextlib.contextmanager
def exclusive(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file `path`; waits for another process that does, and says so.

    The lock ends with its process, however that ends. Raises ModelFileError where the file cannot
    be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_failure(path, error) from error
    try:
        while not _try_lock(descriptor):
            progress("waiting for another process that fetches the model", 0, None)
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` whole, on disk, when the block ends, or not at all.

    For use under the lock: its temporary name is fixed, so that what a killed process left is
    overwritten by the next one. Raises ModelFileError where it cannot be written.
    """
    partial = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise write_failure(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def check_free_space(directory: Path, needed_bytes: int) -> None:
    """Raise ModelFileError where the file system of `directory` has too little space left."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise write_failure(directory, error) from error
    if free < needed_bytes:
        raise ModelFileError(
            str(directory),
            f"has {free / 1e6:.0f} MB free, {needed_bytes / 1e6:.0f} MB are needed;"
            " free some, or set MILEAGE_CACHE_DIR to another disk",
        )


def write_failure(path: Path, error: OSError) -> ModelFileError:
    """The error to raise where `path` could not be written."""
    if error.errno in _NO_SPACE:
        message = "cannot be written: no space left; free some, or set MILEAGE_CACHE_DIR"
    else:
        message = f"cannot be written: {error.strerror or error}"
    return ModelFileError(str(path), message)
