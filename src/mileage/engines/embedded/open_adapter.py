"""OpenAdapter: an adapter's file, held open so that all children of its engine find the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mileage.core.errors import ModelFileError

__all__ = ["OpenAdapter"]


class OpenAdapter:
    """The file as it was when it was opened, though it is deleted or another takes its place.

    Else a child that has died could not be started again, nor any be started with one more adapter.
    A child that was given `descriptor` reads it at `child_path`.
    """

    __slots__ = ("child_path", "descriptor", "path")

    def __init__(self, path: Path) -> None:
        """Raises ModelFileError where it cannot be opened."""
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ModelFileError(str(path), f"cannot be read: {error.strerror}") from error
        linux = sys.platform == "linux"
        self.child_path = f"/proc/self/fd/{self.descriptor}" if linux else str(path)

    def named(self, message: str) -> str:
        """What a child says of it, with the name that people know it by."""
        return message.replace(self.child_path, str(self.path))

    def close(self) -> None:
        """No child is to be started with it any more."""
        os.close(self.descriptor)
