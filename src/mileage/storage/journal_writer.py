"""JournalWriter: one worker's journal in rotating files: in batches, bounded, never in the way."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mileage.control.journal import (
    BatchEncoder,
    Handled,
    JournalEnding,
    JournalHeader,
    columns,
    encode_header,
)
from mileage.core.actions import Action
from mileage.core.errors import LedgerError
from mileage.core.events import ConfigChanged, Event
from mileage.core.request import Endpoint
from mileage.storage.journal_files import (
    create_journal_file,
    journal_files,
    remove_oldest,
    worker_directory,
    write_all,
)
from mileage.storage.lock import DirectoryLock

__all__ = ["JournalWriter", "new_header"]

BATCH_RECORDS: Final = 64
"""Calls of the controller that are encoded and written together: some 4 KiB in 0.05 ms, so that
the loop is not held up and the cost of a call is small."""
RETRY_S: Final = 10.0
"""Between two tries to begin a segment after one could not be written."""

_STATES: Final = 4
"""A segment is at least this many times as long as the state that it begins with."""

_log = logging.getLogger(__name__)


def new_header(
    *,
    version: str,
    worker: int,
    replicas: Sequence[str],
    lacks: Mapping[str, Sequence[Endpoint]],
    config: str,
    seed: int,
) -> JournalHeader:
    """The header of a new controller's first segment; the writer fills in the times."""
    return JournalHeader(
        version=version,
        worker=worker,
        run=0,
        part=0,
        began_at_utc_ns=0,
        began_s=0.0,
        replicas=tuple(replicas),
        lacks={name: tuple(endpoints) for name, endpoints in lacks.items()},
        config=config,
        seed=seed,
        events=columns(Event),
        actions=columns(Action),
    )


class JournalWriter:
    """Implements mileage.core.ports.JournalSink. For one thread.

    Records are written 64 at a time, or when `flush` is called; until then nothing is done with
    them but to keep them. A segment is ended at `segment_bytes_max`, and the next one begins with
    the controller's state; the oldest are removed so that all together take at most `bytes_max`.

    After any error nothing is recorded (`ok` is False, `last_error` says why, `dropped_total`
    counts) until, some seconds later, a new segment can be begun. No call raises.
    """

    def __init__(
        self,
        directory: Path,
        header: JournalHeader,
        *,
        segment_bytes_max: int,
        bytes_max: int,
        clock: Callable[[], float] = time.monotonic,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._directory = worker_directory(directory, header.worker)
        self._clock, self._utc_ns = clock, utc_ns
        self._header = msgspec.structs.replace(header, run=utc_ns() // 1000, part=0)
        self._segment_bytes_max, self._bytes_max = segment_bytes_max, bytes_max
        self._encoder = BatchEncoder()
        self._snapshot: Callable[[], bytes] | None = None
        self._new = True
        self._lock: DirectoryLock | None = None
        self._fd = -1
        self._waiting: list[Handled] = []
        self._size = self._limit = 0
        self._retry_at_s = float("-inf")
        self._closed = False
        self.last_error: str | None = None
        self._written_total = 0
        self.dropped_total = 0

    @property
    def ok(self) -> bool:
        """Whether events are recorded now."""
        return self._fd >= 0

    @property
    def records_total(self) -> int:
        """Events recorded so far, those that wait to be written included."""
        return self._written_total + len(self._waiting)

    def start(self, snapshot: Callable[[], bytes]) -> None:
        """Begin the first segment; `snapshot` gives the controller's state between two events."""
        self._snapshot = snapshot
        self._begin()

    def handled(self, now_s: float, event: Event, actions: Sequence[Action]) -> None:
        """Record one call of the controller."""
        # The controller may go on to use its list of actions.
        self._append(event, (now_s, event, tuple(actions), None))

    def failed(self, now_s: float, event: Event, error: Exception) -> None:
        """Record a call that raised, and write it at once: it may be the last one."""
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception:
            text = type(error).__name__
        self._append(event, (now_s, event, (), text))
        if self._fd >= 0:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._fd >= 0:
            if self._waiting:
                self._write_or_stop()
        elif not self._closed and self._clock() >= self._retry_at_s:
            self._begin()

    def close(self) -> None:
        """Write what waits, and the record that ends the segment."""
        self._closed = True
        if self._fd >= 0:
            try:
                self._end("stopped")
            except Exception as error:
                self._stop(error)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # --- segments -----------------------------------------------------------------------------

    def _append(self, event: Event, call: Handled) -> None:
        if type(event) is ConfigChanged:
            self._header = msgspec.structs.replace(self._header, config=event.settings)
        if self._fd < 0:
            # Not recorded: the state that the next segment begins with knows it.
            self.dropped_total += 1
            self._new = False
            return
        waiting = self._waiting
        waiting.append(call)
        if len(waiting) >= BATCH_RECORDS:
            self._write_or_stop()

    def _write_or_stop(self) -> None:
        """Write what waits, and begin another segment where this one is full by now."""
        try:
            self._write()
            if self._size >= self._limit:
                self._rotate()
        except Exception as error:  # whatever cannot be written or stored, requests go on
            self._stop(error)

    def _write(self) -> None:
        if self._waiting:
            data = self._encoder.batch(self._waiting)
            write_all(self._fd, data)
            self._size += len(data)
            self._written_total += len(self._waiting)
            self._waiting.clear()

    def _rotate(self) -> None:
        """Go on in a new segment; the old one says so only when there is a new one."""
        old_fd, end = self._fd, self._encoder.end("rotated")
        self._open()
        with suppress(OSError):  # without it, the next one is replayed from its own state
            write_all(old_fd, end)
        os.close(old_fd)

    def _end(self, ending: JournalEnding) -> None:
        self._write()
        write_all(self._fd, self._encoder.end(ending))
        os.close(self._fd)
        self._fd = -1

    def _begin(self) -> None:
        """Begin a segment after a start or an outage."""
        try:
            self._open()
        except Exception as error:  # a state that cannot be stored must not end the worker either
            self._stop(error)
            return
        if self.last_error is not None:
            _log.warning("the journal can be written again")
            self.last_error = None

    def _open(self) -> None:
        """Begin a segment with the controller's state. Raises OSError, and what pickle raises."""
        assert self._snapshot is not None, "start comes first"
        if self._lock is None:
            self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = DirectoryLock(self._directory, setting="journal.directory")
        header = msgspec.structs.replace(
            self._header,
            part=self._header.part + 1,
            began_at_utc_ns=self._utc_ns(),
            began_s=self._clock(),
            state=None if self._new else self._snapshot(),
        )
        data = encode_header(header)
        # With a big state a segment is longer, so that most of what is stored are records.
        self._limit = min(max(self._segment_bytes_max, _STATES * len(data)), self._bytes_max)
        files = journal_files(self._directory)
        remove_oldest(files, self._bytes_max - self._limit)
        sequence = files[-1].sequence + 1 if files else 1
        self._fd = create_journal_file(self._directory, sequence, data)
        self._encoder.begin(data)
        self._header = msgspec.structs.replace(header, state=None)
        self._new = False
        self._size = len(data)

    def _stop(self, error: Exception) -> None:
        """Leave the segment as it is, cut to whole records, and try a new one later."""
        self._retry_at_s = self._clock() + RETRY_S
        self.dropped_total += len(self._waiting)
        self._waiting.clear()
        if self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            os.close(self._fd)
            self._fd = -1
        reason = error.strerror if isinstance(error, OSError) else None
        message = str(error) if isinstance(error, LedgerError) else f"{reason or error}"
        if self.last_error is None:
            _log.error("the journal is not written: %s: %s", self._directory, message)
        self.last_error = message
