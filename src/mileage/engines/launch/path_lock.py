"""PathLock: a path is one launch's alone, and who comes second learns which process has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from mileage.core.errors import ConfigError

__all__ = ["PathLock"]


class PathLock:
    """Held from construction to `release` or the process's death, by an flock on `.NAME.lock`
    beside the path. The file is gone after `release`.
    """

    def __init__(self, path: Path, *, key: str) -> None:
        """Raises ConfigError, of `key`, which names the process that holds it."""
        self.path = path.with_name(f".{path.name}.lock")
        while True:
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                expected = f"a path beside which {self.path.name} can be written ({error.strerror})"
                raise ConfigError(key, str(path), expected) from None
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
                os.close(self._fd)
                expected = f"one of its own: another launch (pid {holder or 'unknown'}) has this"
                if not isinstance(error, BlockingIOError):
                    expected = f"a path that can be locked ({error.strerror})"
                raise ConfigError(key, str(path), expected) from None
            if self._is_there():
                break
            os.close(self._fd)  # who had it has taken it away meanwhile
        with contextlib.suppress(OSError):  # for people: a full disk keeps nobody from running
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one have it; twice is fine."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()  # before it is given up: another one's is not taken away
        os.close(self._fd)
        self._fd = -1

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return False
