"""Standard output that cannot be written, such as on a full disk, is told as one error."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from mileage.core.errors import FileError

__all__ = ["TellingFile", "open_standard_files", "tell_of_stdout"]


class TellingFile(io.FileIO):
    """A file descriptor whose first failure to write is a FileError; a pipe that nobody reads any
    more stays a BrokenPipeError. What is written afterwards is dropped, as the interpreter flushes
    what is left when it ends."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._told_as = name
        self._failed = False
        self.was_written = False
        """Something was to be written to it."""

    def write(self, data: Any, /) -> int:
        """As of io.FileIO; raises FileError."""
        self.was_written = True
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


def open_standard_files() -> None:
    """Open what of descriptors 0 to 2 is closed on /dev/null: else they would be given to the first
    socket or file, which the event loop takes for a fault and aborts, or which gets our output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def tell_of_stdout() -> TellingFile | None:
    """Put such a file behind `sys.stdout`, where that is one with a descriptor; returns it."""
    stdout = sys.stdout
    try:
        descriptor = stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return None  # there is none, or it is a test's
    if not isinstance(stdout, io.TextIOWrapper):
        return None
    stdout.flush()
    file = TellingFile(descriptor, "standard output")
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
    return file
