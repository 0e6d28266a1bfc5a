"""What the child writes to stderr: the last lines in memory, and a log file of bounded size."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

__all__ = ["ChildLog"]

_LINES_MAX = 200
_LINE_BYTES_MAX = 2000
_FILE_BYTES_MAX = 1024 * 1024
_ERRORS_MAX = 3
_ERROR = re.compile(r"\S+ E (?P<text>.*)|(?P<plain>.*(?:GGML_ASSERT|Error: |error: ).*)")


class ChildLog:
    """Keeps the log of one child after another.

    A full or read-only disk does not matter: the lines in memory stay, the file misses some.
    Without a path there is no file; at `file_bytes_max` it is put aside as NAME.1.
    """

    def __init__(self, path: Path | None, *, file_bytes_max: int = _FILE_BYTES_MAX) -> None:
        self._path, self._file_bytes_max = path, file_bytes_max
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._errors: list[str] = []
        self._rest = b""

    def begin(self) -> None:
        """A new child writes from here on; lines and errors of the one before are forgotten."""
        self._lines.clear()
        self._errors.clear()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take in bytes as they come; lines may be cut anywhere."""
        self._write(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:_LINE_BYTES_MAX]
        for line in lines:
            self._add(line)

    def end(self) -> None:
        """The child has written its last byte."""
        if self._rest:
            self._add(self._rest)
            self._rest = b""

    def _add(self, line: bytes) -> None:
        text = line[:_LINE_BYTES_MAX].decode("utf-8", "replace").rstrip()
        self._lines.append(text)
        match = _ERROR.fullmatch(text)
        if match and len(self._errors) < _ERRORS_MAX:
            self._errors.append((match["text"] or match["plain"]).strip())

    def tail(self, count: int) -> list[str]:
        """The last lines."""
        return list(self._lines)[-count:]

    def first_errors(self) -> str:
        """The first errors that the child wrote, else its last lines: the first name the cause."""
        return "; ".join(self._errors or [line for line in self.tail(_ERRORS_MAX) if line])

    def _write(self, data: bytes) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(data)
                size = file.tell()
            if size > self._file_bytes_max:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        except OSError:
            pass  # as the class says
