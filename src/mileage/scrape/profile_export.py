"""Files of profilers: plain, gzip, or a database of nsys."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

from mileage.core.errors import TraceError
from mileage.doctor.collect.profile_file import profile_reading
from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.scrape.nsys_database import read_nsys_database

__all__ = ["read_profile"]

BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_SQLITE: Final = b"SQLite format 3\0"
_KINDS: Final = {
    b"PK\x03\x04": "an archive: give what is in it",
}


def read_profile(path: Path) -> ProfileReading:
    """What an export tells.

    Raises:
        TraceError: it cannot be read, is larger than 2 GiB, or no export that is known.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE))
        if head == _SQLITE:
            return read_nsys_database(path)
        is_gzip = head[:2] == _GZIP
        with gzip.open(path) if is_gzip else path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "broken"
        raise TraceError(str(path), 0, f"cannot be read: {reason}") from None
    if len(data) > BYTES_MAX:
        raise TraceError(str(path), 0, f"more than {BYTES_MAX >> 30} GiB: profile a shorter time")
    for magic, what in _KINDS.items():
        if data.startswith(magic):
            raise TraceError(str(path), 0, what)
    return profile_reading(data, place=str(path))
