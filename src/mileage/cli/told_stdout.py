"""Standard output that cannot be written, such as on a full disk, is told as one error."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any

from mileage.core.errors import FileError

__all__ = ["TellingFile", "tell_of_stdout"]


class TellingFile(io.FileIO):
    """A file descriptor whose first failure to write is a FileError; a pipe that nobody reads any
    more stays a BrokenPipeError. What is written afterwards is dropped, as the interpreter flushes
    what is left when it ends."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._told_as = name
        self._failed = False

    def write(self, data: Any, /) -> int:
        """As of io.FileIO; raises FileError."""
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            if error.errno == errno.EPIPE:
                raise
            reason = error.strerror or str(error)
            raise FileError(self._told_as, f"cannot be written ({reason})") from None


def tell_of_stdout() -> None:
    """Put such a file behind `sys.stdout`, where that is one with a descriptor."""
    stdout = sys.stdout
    try:
        descriptor = stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return  # there is none, or it is a test's
    if not isinstance(stdout, io.TextIOWrapper):
        return
    stdout.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(TellingFile(descriptor, "standard output")),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
