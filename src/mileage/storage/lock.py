"""DirectoryLock: one gateway per ledger directory."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from mileage.core.errors import LedgerError

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """Held from construction to `release` or the process's death, by an flock on a file in it."""

    def __init__(self, directory: str | Path, *, setting: str) -> None:
        """Take the lock. Raises LedgerError naming the directory, the pid that holds it, and the
        `setting` that a second gateway is to be given.
        """
        path = Path(directory) / "gateway.lock"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(str(path), f"cannot open: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            if isinstance(error, BlockingIOError):
                message = (
                    f"is in use by another gateway (pid {holder}): give this one another "
                    f"{setting}, or a state of its own (XDG_STATE_HOME)"
                )
            else:
                message = f"cannot be locked: {error.strerror}"
            raise LedgerError(str(directory), message) from error
        with suppress(OSError):  # the pid is for people: a full disk does not keep us from running
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one have it; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
