"""Segments: the files of the request log, their names, headers, and whether a writer holds one."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from mileage.core.errors import LedgerError

__all__ = [
    "FORMAT_VERSION",
    "HEADER_BYTES",
    "SegmentHeader",
    "SegmentName",
    "create_segment",
    "held_by_writer",
    "log_directory",
    "read_header",
    "remove_leftovers",
]

FORMAT_VERSION: Final = 1
WORKER_MAX: Final = 63
LEFTOVER_NS: Final = 60 * 1_000_000_000

_MAGIC: Final = b"MILEAGE\n"
_LAYOUT: Final = struct.Struct("<8sHHIQII")
HEADER_BYTES: Final = _LAYOUT.size + 4
_NAME: Final = re.compile(r"(\d{16})-(\d{2})-(\d{6})\.log")


class SegmentName(msgspec.Struct, frozen=True, order=True, gc=False):
    """Whose segment it is and which: `run_id` is the writer's start, microseconds since 1970.

    Ordered by run, worker and sequence; sequences of one writer count up from 1.
    """

    run_id: int
    worker: int
    sequence: int

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """The name's parts; None for a file that is no segment."""
        match = _NAME.fullmatch(name)
        return cls(*map(int, match.groups())) if match else None

    def __str__(self) -> str:
        return f"{self.run_id:016d}-{self.worker:02d}-{self.sequence:06d}.log"


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a segment begins with. `marker` begins each of its records."""

    name: SegmentName
    marker: int
    pid: int
    version: int = FORMAT_VERSION

    def encode(self) -> bytes:
        """HEADER_BYTES bytes."""
        head = _LAYOUT.pack(
            _MAGIC,
            self.version,
            self.name.worker,
            self.marker,
            self.name.run_id,
            self.name.sequence,
            self.pid,
        )
        return head + crc32(head).to_bytes(4, "little")

    @classmethod
    def decode(cls, data: bytes) -> SegmentHeader | None:
        """The header at the start of `data`; None where there is no whole and valid one."""
        head = data[: _LAYOUT.size]
        if len(data) < HEADER_BYTES or head[: len(_MAGIC)] != _MAGIC:
            return None
        if crc32(head).to_bytes(4, "little") != data[_LAYOUT.size : HEADER_BYTES]:
            return None
        _, version, worker, marker, run_id, sequence, pid = _LAYOUT.unpack(head)
        name = SegmentName(run_id, worker, sequence)
        return cls(name=name, marker=marker, pid=pid, version=version)


def log_directory(directory: str | Path) -> Path:
    """The ledger directory's subdirectory of segments; both are made (0700) where missing.

    Raises LedgerError, naming the directory, where that is not possible.
    """
    path = Path(directory) / "log"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise LedgerError(str(path), f"cannot make the directory: {error.strerror}") from error
    return path


def create_segment(directory: Path, header: SegmentHeader) -> int:
    """Create the segment, locked and with its header, and return its file descriptor.

    It gets its name only when it is locked, so whoever sees an unlocked segment knows that its
    writer has closed it or is dead. Raises OSError; then nothing is left behind.
    """
    final = directory / str(header.name)
    early = directory / f".{header.name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(early, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(fd, header.encode()) != HEADER_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        early.rename(final)
    except BaseException:
        os.close(fd)
        early.unlink(missing_ok=True)
        raise
    return fd


def remove_leftovers(directory: Path, utc_ns: int) -> int:
    """Delete segments whose writer died before they got their name; return how many.

    One that is younger than a minute may be about to get it. Raises OSError.
    """
    count = 0
    for path in directory.glob(".*.log.new"):
        if utc_ns - path.stat().st_mtime_ns > LEFTOVER_NS:
            path.unlink(missing_ok=True)
            count += 1
    return count


def held_by_writer(fd: int) -> bool:
    """Whether a living process holds the segment open for writing."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def read_header(fd: int) -> SegmentHeader | None:
    """The segment's header; None where it has no whole and valid one. Raises OSError."""
    return SegmentHeader.decode(os.pread(fd, HEADER_BYTES, 0))
