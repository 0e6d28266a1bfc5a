"""JournalReader: reads one journal segment piece by piece, also while it is being written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from mileage.control.journal import JournalHeader
from mileage.control.journal_decoder import JournalDecoder, JournalRecord
from mileage.core.errors import TraceError
from mileage.storage.segment import held_by_writer

__all__ = ["JournalReader", "SegmentEnding"]

_READ_BYTES: Final = 256 * 1024

SegmentEnding = Literal["rotated", "stopped", "live", "early"]
"""rotated: the next segment goes on; stopped: the worker ended; live: a worker writes it now;
early: its worker was killed, or could not write, and up to a second of records is missing."""


class JournalReader:
    """One segment: `header`, then `records()`, then `ending`.

    Used as a context. Raises TraceError, with the file and the number of the record, for one that
    is damaged or of another format, and for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = JournalDecoder(str(path))
        self._pending: list[JournalRecord] = []
        self._fd = -1
        self._live = False
        self.size_bytes = 0
        """When it was opened; what is written later is not read."""

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            # Asked first: a writer that ends between the two has written all that we then see.
            self._live = held_by_writer(self._fd)
            self.size_bytes = os.fstat(self._fd).st_size
        except OSError as error:
            self._close()
            raise self._unreadable(error) from None
        self._left = self.size_bytes
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def header(self) -> JournalHeader | None:
        """The header; None where the file ends before it does."""
        while self._decoder.header is None:
            data = self._read()
            if not data:
                break
            self._pending += self._decoder.feed(data)
        return self._decoder.header

    def records(self, progress: Callable[[int], None] | None = None) -> Iterator[JournalRecord]:
        """The records, in order; `progress` is told the bytes read so far."""
        self.header()
        while True:
            yield from self._pending
            self._pending = []
            if progress is not None:
                progress(self.size_bytes - self._left)
            data = self._read()
            if not data:
                return
            self._pending = self._decoder.feed(data)

    @property
    def ending(self) -> SegmentEnding:
        """How the segment ends; to be asked after the last record."""
        end = self._decoder.end
        if end is not None:
            return end.ending
        return "live" if self._live else "early"

    @property
    def torn_bytes(self) -> int:
        """Bytes of a last record that was not written whole."""
        return self._decoder.torn_bytes

    def _read(self) -> bytes:
        try:
            data = os.read(self._fd, min(_READ_BYTES, self._left))
        except OSError as error:
            raise self._unreadable(error) from None
        self._left -= len(data)
        return data

    def _unreadable(self, error: OSError) -> TraceError:
        message = f"cannot be read: {error.strerror or error}"
        return TraceError(str(self._path), self._decoder.records, message)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
