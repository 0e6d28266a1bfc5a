"""An engine's output: to a file of bounded size, to the terminal, and line by line to a reader."""

from __future__ import annotations

import os
import queue
import re
import select
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from mileage.core.errors import ConfigError
from mileage.engines.embedded.child_log import ChildLog
from mileage.engines.launch.secret_mask import SecretMask

__all__ = ["Echo", "LogStream", "check_log"]

_LINE_BYTES_MAX: Final = 16_384
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_QUEUE_MAX: Final = 1024
_CLOSE_S: Final = 2.0
_ENDS: Final = re.compile(rb"[\r\n]")


def check_log(path: Path) -> None:
    """Raises ConfigError, of --log, where nothing can be written to the end of this file.

    Its directory is made where there is none. Later a disk that is full costs lines, not the
    engine; a name that is wrong would cost all of them.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ConfigError("--log", str(path), "a file: this is a directory, device or pipe")
        with path.open("ab"):
            pass
    except OSError as error:
        expected = f"a file that can be written to ({error.strerror or error})"
        raise ConfigError("--log", str(path), expected) from None


class LogStream:
    """Takes in bytes as they come. Progress bars, which end with a carriage return, are lines."""

    def __init__(
        self,
        path: Path | None,
        *,
        echo: Echo | None,
        read: Callable[[str], None],
        secrets: Collection[str] = (),
    ) -> None:
        """`secrets` are shown and written as ***."""
        self._log = ChildLog(path, file_bytes_max=_FILE_BYTES_MAX)
        self._echo, self._read = echo, read
        self._mask = SecretMask(secrets)
        self._rest = b""

    def begin(self) -> None:
        """Another process writes from here on."""
        self._log.begin()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take in bytes; lines may be cut anywhere. What is longer than 16 KiB of one is lost."""
        self._take(self._mask.feed(data))

    def _take(self, data: bytes) -> None:
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
        self._take(self._mask.end())
        self._log.end()
        if self._rest:
            self._read(self._rest.decode("utf-8", "replace"))
            self._rest = b""

    def tail(self, count: int) -> list[str]:
        """Its last lines that are not empty."""
        return [line for line in self._log.tail(4 * count) if line.strip()][-count:]


class Echo:
    """Writes to a terminal or pipe from a thread: whoever does not read it holds nobody up, and
    what nobody reads any more is lost.

    It writes to the descriptor itself: a thread that waits in a Python file has its lock, and then
    the interpreter cannot end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine-log", daemon=True)
        self._thread.start()
        self.dropped = 0

    def write(self, data: bytes) -> None:
        """Write when there is time for it. What there is too much of is dropped, and counted."""
        if self._queue.qsize() < _QUEUE_MAX:
            self._queue.put(data)
        else:
            self.dropped += 1

    def tell(self, text: str) -> None:
        """Write this whatever else waits: it is rare, and short."""
        self._queue.put(text.encode(errors="replace"))

    def close(self) -> None:
        """Write what is queued, for at most two seconds."""
        self._queue.put(None)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                while data:
                    data = data[self._write(data) :]
            except OSError:
                continue  # nobody reads it any more

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # another process that has it made it so
            select.select([], [self._descriptor], [])
            return 0
