"""An engine's output: to a file of bounded size, to the terminal, and line by line to a reader."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from mileage.engines.embedded.child_log import ChildLog

__all__ = ["Echo", "LogStream"]

_LINE_BYTES_MAX: Final = 16_384
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_QUEUE_MAX: Final = 1024
_CLOSE_S: Final = 2.0
_ENDS: Final = re.compile(rb"[\r\n]")


class LogStream:
    """Takes in bytes as they come. Progress bars, which end with a carriage return, are lines."""

    def __init__(
        self, path: Path | None, *, echo: Echo | None, read: Callable[[str], None]
    ) -> None:
        self._log = ChildLog(path, file_bytes_max=_FILE_BYTES_MAX)
        self._echo, self._read = echo, read
        self._rest = b""

    def begin(self) -> None:
        """Another process writes from here on."""
        self._log.begin()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take in bytes; lines may be cut anywhere. What is longer than 16 KiB of one is lost."""
        self._log.feed(data)
        if self._echo is not None:
            self._echo.write(data)
        *lines, rest = _ENDS.split(self._rest + data)
        self._rest = rest[:_LINE_BYTES_MAX]
        for line in lines:
            if line:
                self._read(line[:_LINE_BYTES_MAX].decode("utf-8", "replace"))

    def end(self) -> None:
        """The process has written its last byte."""
        self._log.end()
        if self._rest:
            self._read(self._rest.decode("utf-8", "replace"))
            self._rest = b""

    def tail(self, count: int) -> list[str]:
        """Its last lines that are not empty."""
        return [line for line in self._log.tail(4 * count) if line.strip()][-count:]


class Echo:
    """Writes to a terminal or pipe from a thread: whoever does not read it holds nobody up.

    What does not fit into the queue is dropped, and counted.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._queue: queue.Queue[bytes | None] = queue.Queue(_QUEUE_MAX)
        self._thread = threading.Thread(target=self._run, name="engine-log", daemon=True)
        self._thread.start()
        self.dropped = 0

    def write(self, data: bytes) -> None:
        """Write when there is time for it."""
        try:
            self._queue.put_nowait(data)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is queued, for at most two seconds."""
        try:
            self._queue.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                self._file.write(data)
                self._file.flush()
            except (OSError, ValueError):
                continue  # nobody reads it any more
