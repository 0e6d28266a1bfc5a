"""LogWriter: appends intents and ends of requests to log segments with write(2)."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import LedgerError
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.storage.record import (
    CHARGED,
    DETAILED,
    FINISH,
    HEADER,
    NAMED,
    RecordEncoder,
)
from mileage.storage.segment import (
    HEADER_BYTES,
    WORKER_MAX,
    SegmentHeader,
    SegmentName,
    create_segment,
    log_directory,
)

__all__ = ["LogWriter"]

RETRY_S: Final = 0.05
"""First pause after a failed write; doubles up to RETRY_MAX_S while writes go on failing."""
RETRY_MAX_S: Final = 1.0
DROPPED_IDS_MAX: Final = 16_384
"""Requests whose unwritten end is remembered, to be told when writing works again."""

_ENDS: Final = (FINISH, DETAILED, CHARGED, NAMED)
_PASSING: Final = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EMFILE, errno.ENFILE}
"""Errors that may go away: the writer starts without a segment and tries again."""


class LogWriter:
    """One worker's part of the request log; implements mileage.core.ports.RequestLog.

    What a call has acknowledged with True survives the death of the process (write(2) has handed
    it to the kernel), not a power cut. A record that cannot be written whole is taken back
    (ftruncate), counted, and the call returns False; the next calls fail at once for a moment,
    then one tries again. Nothing raises after construction. For one thread.

    `write` takes records that `encode_intent` and `encode_finish` made, so that a caller can put
    the records of one turn of its event loop into one system call; all of them are acknowledged
    or none. Keep file descriptors away from forked children: one that inherits the segment's
    keeps it locked, and a dead writer would seem alive.
    """

    def __init__(
        self,
        directory: str | Path,
        worker: int,
        *,
        segment_bytes_max: int = 64 * 1024 * 1024,
        token_times: bool = True,
        clock: Callable[[], float] = time.monotonic,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Open the first segment. Raises LedgerError where that can never work.

        A full disk is no such case: the writer then starts not `ok` and recovers by itself.
        """
        if not 0 <= worker <= WORKER_MAX:
            raise ValueError(f"worker {worker} is not in 0..{WORKER_MAX}")
        self._directory = log_directory(directory)
        self._worker, self._clock = worker, clock
        self._run_id = utc_ns() // 1000
        self._marker = int.from_bytes(os.urandom(4), "little")
        self._segment_bytes_max = segment_bytes_max
        self._encoder = RecordEncoder(self._marker, token_times=token_times)
        self.encode_intent = self._encoder.intent
        self.encode_finish = self._encoder.finish
        self._fd = -1
        self._sequence = self._records = self._size = self._limit = 0
        self._torn = False
        self._blocked, self._retry_at_s, self._pause_s = False, 0.0, RETRY_S
        self._unwritten: list[int] = []
        self.dropped_total = 0
        self.last_error: str | None = None
        try:
            self._open_next()
        except OSError as error:
            if error.errno not in _PASSING:
                raise LedgerError(
                    str(self._directory), f"cannot write the request log: {error.strerror}"
                ) from error
            self._block(error)

    @property
    def ok(self) -> bool:
        """Whether the last write worked. `last_error` says why not; it stays as a memory."""
        return not self._blocked

    @property
    def path(self) -> Path:
        """The segment that is written to."""
        return self._directory / str(SegmentName(self._run_id, self._worker, self._sequence))

    def intent(self, request: Request, arrived_at_utc_ns: int) -> bool:
        """Record that the request is about to be dispatched."""
        record = self.encode_intent(request, arrived_at_utc_ns)
        return self._write_again((record,)) if self._blocked else self._append(record, (record,))

    def finish(self, timeline: RequestTimeline) -> bool:
        """Record how the request ended; call it before the answer's last byte is sent."""
        record = self.encode_finish(timeline)
        return self._write_again((record,)) if self._blocked else self._append(record, (record,))

    def write(self, records: Sequence[bytes]) -> bool:
        """Append whole records in one system call: all of them, else none and False."""
        if self._blocked:
            return self._write_again(records)
        return self._append(b"".join(records), records)

    def close(self) -> None:
        """End the segment with a footer; the writer can then no longer be used."""
        if self._fd >= 0:
            self._end_segment(self._fd, last=True)
        self._fd = -1
        self._block(OSError(errno.EBADF, "the log is closed"))
        self._retry_at_s = float("inf")

    def _append(self, data: bytes, records: Sequence[bytes], extra: int = 0) -> bool:
        size = self._size + len(data)
        if size > self._limit and self._records:
            self._rotate()
            size = self._size + len(data)
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                self._torn = written > 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._block(error)
            self._take_back()
            self._drop(records)
            return False
        self._size = size
        self._records += len(records) + extra
        return True

    def _write_again(self, records: Sequence[bytes]) -> bool:
        """What `write` does while writing fails: nothing until it is time for another try."""
        if self._clock() < self._retry_at_s:
            self._drop(records)
            return False
        self._take_back()
        try:
            if self._torn:  # leave it as it is: what follows it there might be cut off one day
                os.close(self._fd)
                self._fd = -1
            if self._fd < 0:
                self._open_next()
        except OSError as error:
            self._block(error)
            self._drop(records)
            return False
        notice = self._notice()
        if not self._append(notice + b"".join(records), records, bool(notice)):
            return False
        self._blocked, self._pause_s = False, RETRY_S
        self._unwritten.clear()
        return True

    def _block(self, error: OSError) -> None:
        self.last_error = f"{self._directory}: {error.strerror or error}"
        self._blocked = True
        self._retry_at_s = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)

    def _take_back(self) -> None:
        """Cut off what was written of a record that did not fit."""
        if self._torn:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
                self._torn = False

    def _drop(self, records: Sequence[bytes]) -> None:
        self.dropped_total += len(records)
        for record in records:
            kind = HEADER.unpack_from(record)[1] >> 24
            if kind in _ENDS and len(self._unwritten) < DROPPED_IDS_MAX:
                self._unwritten.append(msgspec.msgpack.decode(record[HEADER.size :])[0])

    def _notice(self) -> bytes:
        if not self._unwritten:
            return b""
        return self._encoder.dropped(self.last_error or "not written", self._unwritten)

    def _rotate(self) -> None:
        """Go on in a new segment. Where there can be none, go on in this one and try later."""
        full = self._fd
        records = self._records
        try:
            self._open_next()
        except OSError as error:
            self.last_error = f"{self._directory}: {error.strerror or error}"
            self._limit += self._segment_bytes_max // 16
            return
        self._end_segment(full, last=False, records=records)

    def _open_next(self) -> None:
        header = SegmentHeader(
            name=SegmentName(self._run_id, self._worker, self._sequence + 1),
            marker=self._marker,
            pid=os.getpid(),
        )
        self._fd = create_segment(self._directory, header)
        self._sequence += 1
        self._records, self._size, self._torn = 0, HEADER_BYTES, False
        self._limit = self._segment_bytes_max

    def _end_segment(self, fd: int, *, last: bool, records: int | None = None) -> None:
        """Footer and close. The footer only confirms; without room for it, it is left out."""
        footer = self._encoder.footer(self._records if records is None else records, last=last)
        with suppress(OSError):
            size = os.fstat(fd).st_size
            if os.write(fd, footer) != len(footer):
                os.ftruncate(fd, size)
        os.close(fd)
