"""The file of `--ready-file`: there, with the start's phases, while the engine is ready."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError
from mileage.engines.launch.events import Ready
from mileage.engines.launch.path_lock import PathLock

__all__ = ["ReadyFile"]

_KEY: Final = "--ready-file"
_READ_MAX: Final = 65_536


class _Head(msgspec.Struct):
    """What tells our own file from any other."""

    event: str


class ReadyFile:
    """Of one launch alone, from construction to `close`."""

    def __init__(self, path: Path) -> None:
        """Take it, and remove what a launch that was killed has left.

        Raises ConfigError where it cannot be written, another launch has it, or the file that is
        there is none that a launch wrote.
        """
        check_place(path, key=_KEY)
        self._path = Path(os.path.realpath(path))
        self._refuse_foreign(path)
        self._lock = PathLock(self._path, key=_KEY)
        self.remove()

    def write(self, event: Ready) -> None:
        """Raises MileageError."""
        with whole_file(self._path, key=_KEY) as file:
            file.write(msgspec.json.encode(event) + b"\n")

    def remove(self) -> None:
        """It is not ready; twice is fine."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove it, and let another launch have the name."""
        self.remove()
        self._lock.release()

    def _refuse_foreign(self, path: Path) -> None:
        if not self._path.exists():
            return
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if self._path.is_file():
                with self._path.open("rb") as file:
                    head = msgspec.json.decode(file.read(_READ_MAX), type=_Head)
                if head.event == "ready":
                    return
        expected = "a name that is free: what is there was written by no launch, and is kept"
        raise ConfigError(_KEY, str(path), expected)
