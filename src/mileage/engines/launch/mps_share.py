"""Which launches share the MPS daemon of a pipe directory: the last one ends it.

Each has a shared flock on `mileage.lock` among the pipes, from before its engine starts until after
it has ended; the daemon is started, and ended, under an exclusive one. The file says which process
started the daemon: empty, it is somebody else's, and left alone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from mileage.core.errors import EngineError

__all__ = ["MpsShare", "end_if_last"]

_WAIT_S: Final = 30.0
"""More than the commands of another launch take, to find the daemon or to end it."""
_LOOK_S: Final = 0.05
_TRIES: Final = 5

T = TypeVar("T")


class MpsShare:
    """The share of one launch; `descriptor` is inherited by who ends the daemon."""

    def __init__(self, pipe_directory: str) -> None:
        """Raises EngineError where no file can be made there."""
        self._path = Path(pipe_directory) / "mileage.lock"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EngineError(str(self._path), f"cannot be opened: {error.strerror}") from None

    def enter(self, start: Callable[[], tuple[T, bool]]) -> tuple[T, bool]:
        """What `start` returns, which no other launch runs meanwhile, and whether the daemon is to
        be ended by the last of the launches. `start`: what it found, and whether it started it.

        Raises EngineError where another launch keeps its lock, and as `start`.
        """
        for _ in range(_TRIES):
            self._lock()
            found, started = start()
            if started:
                self._mark(f"{os.getpid()}\n")
            ours = bool(self._mark_of())
            fcntl.flock(self.descriptor, fcntl.LOCK_SH)
            if bool(self._mark_of()) == ours:
                return found, ours
            # Between the two locks the last of the others has ended it.
        raise EngineError(str(self._path), "its daemon was ended again and again by other launches")

    def close(self) -> None:
        """Give the share up here; who has inherited the descriptor still has it."""
        os.close(self.descriptor)

    def _lock(self) -> None:
        due_s = time.monotonic() + _WAIT_S
        while not _try_exclusive(self.descriptor):
            # Those that share it do not keep others from joining them.
            if self._mark_of() and _try_shared(self.descriptor):
                return
            if time.monotonic() > due_s:
                message = f"another launch (pid {self._mark_of() or 'unknown'}) keeps its lock"
                raise EngineError(str(self._path), message)
            time.sleep(_LOOK_S)

    def _mark(self, text: str) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)

    def _mark_of(self) -> str:
        return os.pread(self.descriptor, 32, 0).decode("ascii", "replace").strip()


def end_if_last(descriptor: int, end: Callable[[], None]) -> bool:
    """Give the share up, and `end` what was shared if nobody else has one."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # of two that go at once, the later one ends it
    if not _try_exclusive(descriptor):
        return False
    end()
    os.ftruncate(descriptor, 0)
    os.close(descriptor)
    return True


def _try_exclusive(descriptor: int) -> bool:
    return _try(descriptor, fcntl.LOCK_EX)


def _try_shared(descriptor: int) -> bool:
    return _try(descriptor, fcntl.LOCK_SH)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
