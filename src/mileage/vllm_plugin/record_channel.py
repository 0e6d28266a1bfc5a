"""RecordChannel: records out of an engine into files, by a thread that may fall behind or fail."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing.util
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ChannelLimits", "RecordChannel"]

_log = logging.getLogger("vllm.mileage")
_WRITE_BYTES: Final = 1 << 20
_STOP_S: Final = 5.0


class ChannelLimits(NamedTuple):
    """How much a channel holds, in memory and on disk."""

    waiting_bytes: int = 16 << 20
    """Records that wait to be written; what comes then is dropped."""
    file_bytes: int = 32 << 20
    """After this a file is complete, and another one begun."""
    files_bytes: int = 1 << 30
    """Of all files of this replica, those of earlier runs too; the oldest are removed."""
    interval_s: float = 0.5
    """Between two looks at what waits."""


class _Record(NamedTuple):
    data: bytes
    began_ns: int
    ended_ns: int
    lost: int
    """Not 0: it stands for so many that are lost."""


class RecordChannel:
    """A queue in memory with one writer of files behind it; `put` never waits.

    What cannot be kept, as the queue or the disk is full, is dropped and counted; then a record
    that says so (`lost_record`) comes before the next that is written. Files are not synced: what
    a power cut takes is estimated again. Each process writes files of its own, so that one that is
    killed in the middle of a record leaves a file that ends there.
    """

    def __init__(
        self,
        directory: Path,
        stem: str,
        suffix: str,
        lost_record: Callable[[int, int, int], bytes],
        limits: ChannelLimits | None = None,
        *,
        tick: Callable[[], None] | None = None,
    ) -> None:
        """`lost_record(began_ns, ended_ns, records)`; `tick` is called after each look."""
        self._directory, self._stem, self._suffix = directory, stem, suffix
        self._lost_record, self._tick = lost_record, tick
        self._limits = limits or ChannelLimits()
        self._queue: deque[_Record] = deque()
        self._put_bytes = self._taken_bytes = 0
        self._refused: _Record | None = None  # of the engine's thread
        self._failed: _Record | None = None  # of the writer's
        self._file: int | None = None
        self._path: Path | None = None
        self._size = self._number = 0
        self.refused_total = 0
        """Dropped since the queue was full."""
        self.failed_total = 0
        """Dropped since they could not be written."""
        self.error: str | None = None
        """What keeps records from being written now."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mileage-records", daemon=True)

    @property
    def dropped_total(self) -> int:
        """Records that are in no file."""
        return self.refused_total + self.failed_total

    def start(self) -> None:
        """Write from now on, until the process ends or `stop`."""
        self._thread.start()
        # Of a child process multiprocessing runs the one, of any other Python the other.
        multiprocessing.util.Finalize(self, self.stop, exitpriority=100)
        atexit.register(self.stop)

    def put(self, data: bytes, began_ns: int, ended_ns: int) -> None:
        """Have a record written; for one thread, the engine's."""
        if self._put_bytes - self._taken_bytes + len(data) > self._limits.waiting_bytes:
            self.refused_total += 1
            self._refused = _joined(self._refused, began_ns, ended_ns, 1)
            return
        if self._refused is not None:
            self._queue.append(self._refused)
            self._refused = None
        self._queue.append(_Record(data, began_ns, ended_ns, 0))
        self._put_bytes += len(data)

    def stop(self) -> None:
        """Write what waits, and end; again: nothing more."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)
        atexit.unregister(self.stop)

    def _run(self) -> None:
        while True:
            ending = self._stopping.wait(self._limits.interval_s)
            try:
                self._look()
                if self._tick is not None:
                    self._tick()
            except Exception:
                _log.exception("mileage cannot write records")
            if ending:
                break
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _look(self) -> None:
        """Write all that waits."""
        while self._queue:
            batch: list[_Record] = []
            size = 0
            while self._queue and size < _WRITE_BYTES:
                record = self._queue.popleft()
                size += len(record.data)
                batch.append(record)
            self._taken_bytes += size
            self._write(batch)

    def _write(self, batch: list[_Record]) -> None:
        if self._failed is not None:
            batch.insert(0, self._failed)
        data = b"".join(
            self._lost_record(r.began_ns, r.ended_ns, r.lost) if r.lost else r.data for r in batch
        )
        try:
            self._append(data)
        except OSError as error:
            message = f"{self._directory}: {error.strerror or error}"
            if message != self.error:
                _log.error("mileage cannot write records: %s", message)
            self.error = message
            self.failed_total += sum(not r.lost for r in batch)
            lost = sum(r.lost or 1 for r in batch)
            began_ns = min(r.began_ns for r in batch)
            ended_ns = max(r.ended_ns for r in batch)
            self._failed = _Record(b"", began_ns, ended_ns, lost)
            return
        self._failed = None
        if self.error is not None:
            _log.warning("mileage writes records again")
            self.error = None

    def _append(self, data: bytes) -> None:
        """Put it behind the file's end, whole or not at all."""
        file = self._open()
        written = 0
        try:
            while written < len(data):
                written += os.write(file, data[written:])
        except OSError:
            os.ftruncate(file, self._size)  # shrinking works on a full disk, too
            raise
        self._size += written

    def _open(self) -> int:
        """The file to write to: another one where this one is full, or was removed."""
        if self._file is not None:
            if self._size < self._limits.file_bytes and os.fstat(self._file).st_nlink:
                return self._file
            os.close(self._file)
            self._file = None
        self._directory.mkdir(parents=True, exist_ok=True)
        self._remove_old()
        # In the order of time by name, and of no process before or beside this one.
        name = f"{self._stem}@{time.time_ns():020d}-{os.getpid()}-{self._number}{self._suffix}"
        self._number += 1
        self._path = self._directory / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o644)
        self._size = 0
        return self._file

    def _remove_old(self) -> None:
        """Make room for one more file."""
        sizes: dict[Path, int] = {}
        for path in sorted(self._directory.glob(f"{self._stem}@*{self._suffix}")):
            with contextlib.suppress(FileNotFoundError):  # removed by another process meanwhile
                sizes[path] = path.stat().st_size
        total = sum(sizes.values()) + self._limits.file_bytes
        for path, size in sizes.items():
            if total <= self._limits.files_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size


def _joined(known: _Record | None, began_ns: int, ended_ns: int, lost: int) -> _Record:
    """One record for all that were lost since the last that was not."""
    if known is None:
        return _Record(b"", began_ns, ended_ns, lost)
    return _Record(b"", known.began_ns, max(known.ended_ns, ended_ns), known.lost + lost)
