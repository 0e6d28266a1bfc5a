"""SegmentTail: follows one segment of the request log while, or after, its writer writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mileage.core.errors import LedgerError, TraceError
from mileage.storage.log_reader import Decoded, LogDecoder
from mileage.storage.record import HEADER, RECORD_BYTES_MAX, IntentRow
from mileage.storage.segment import (
    FORMAT_VERSION,
    HEADER_BYTES,
    SegmentName,
    held_by_writer,
    read_header,
)

__all__ = ["READ_BYTES", "SegmentTail"]

READ_BYTES: Final = 32 * 1024
"""Read at once, mostly: some 200 records, which are decoded in 0.5 ms."""
READ_BYTES_MAX: Final = 2 * (RECORD_BYTES_MAX + HEADER.size)
"""Read at once after a read without a whole record; any fits, so that one makes progress."""
PATIENCE: Final = 3
"""Times that a bad record of a live writer is looked at before it is skipped: a writer may be
about to cut off what it could not write whole."""


class SegmentTail:
    """Reads what was appended since the last call and keeps the intents that have no end yet."""

    def __init__(self, path: Path, name: SegmentName) -> None:
        """Open the segment.

        Raises OSError; TraceError for a file that does not begin like a segment; LedgerError for a
        segment of a newer format, which another program can read.
        """
        self.path, self.name = path, name
        self.open: dict[int, IntentRow] = {}
        """Intents in this segment without an end so far, by request id."""
        self.done = False
        """The writer is done with the segment and all of it was read."""
        self._impatience = 0
        self._read_bytes = READ_BYTES
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = read_header(self._fd)
            if header is None and self.size_bytes() > 0:
                raise TraceError(str(path), 0, "does not begin like a segment of the request log")
            if header is not None and header.version != FORMAT_VERSION:
                raise LedgerError(
                    str(path),
                    f"has format version {header.version}, this program reads {FORMAT_VERSION}",
                )
        except BaseException:
            os.close(self._fd)
            raise
        # An empty file is what a power cut leaves of a segment whose blocks were not written yet.
        self.done = header is None
        self._decoder = LogDecoder(str(path), header.marker if header else 0, HEADER_BYTES)

    def size_bytes(self) -> int:
        """The file's size now. Raises OSError."""
        return os.fstat(self._fd).st_size

    def lag_bytes(self) -> int:
        """Bytes that were written but not read yet. Raises OSError."""
        return 0 if self.done else max(0, self.size_bytes() - self._decoder.offset)

    def read(self) -> Decoded | None:
        """Some bytes more, decoded; None where there is nothing new. Raises OSError."""
        held = held_by_writer(self._fd)  # asked first: if it is free, what is read then is all
        before = self._decoder.offset
        size, self._read_bytes = self._read_bytes, READ_BYTES
        data = os.pread(self._fd, size, before)
        final = not held and len(data) < size
        if not data and not final:
            return None
        skip = not held or self._impatience >= PATIENCE
        decoded = self._decoder.feed(data, final=final, skip=skip)
        self._impatience = self._impatience + 1 if self._decoder.waiting else 0
        self.done = final
        if final or self._decoder.offset > before:
            return decoded
        if len(data) == size < READ_BYTES_MAX and not self._decoder.waiting:
            self._read_bytes = READ_BYTES_MAX
            return self.read()
        return None

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
