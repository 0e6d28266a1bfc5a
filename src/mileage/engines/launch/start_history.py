"""The last starts of engines on this machine, a JSON line each, so that a slower one is seen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from mileage.engines.launch.start_watch import StartTimes

__all__ = ["StartHistory", "StartRecord", "median_times"]

_KEPT: Final = 500
_BYTES_MAX: Final = 4 * 1024 * 1024
_LINE_BYTES_MAX: Final = 4 * 1024


class StartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One start. `cause`: why it failed, where that is known; `exit_code` where it ended itself."""

    at_utc: str
    engine: str
    model: str | None
    version: str | None = None
    ready: bool
    cause: str | None = None
    exit_code: int | None = None
    times: StartTimes = StartTimes()


class StartHistory:
    """A file of at most 500 starts; one that cannot be written misses some, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, record: StartRecord) -> None:
        """Write a start down. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = msgspec.json.encode(record) + b"\n"
        with self._path.open("ab") as file:
            file.write(line)  # in one write: several launchers may add
            size = file.tell()
        if size > _BYTES_MAX:
            self._shorten()

    def records(self) -> list[StartRecord]:
        """The last starts, oldest first; lines that are none are left out. Raises OSError."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines[-_KEPT:]:
            try:
                found.append(msgspec.json.decode(line, type=StartRecord))
            except msgspec.MsgspecError:
                continue
        return found

    def _shorten(self) -> None:
        every = self._path.read_bytes().splitlines(keepends=True)
        lines = [line for line in every if len(line) <= _LINE_BYTES_MAX][-_KEPT:]
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_bytes(b"".join(lines))
        partial.replace(self._path)


def median_times(starts: Sequence[StartTimes]) -> StartTimes:
    """The median of each phase over the starts in which it was seen; None where in none."""
    found = {}
    for name in StartTimes.__struct_fields__:
        seen = [took for start in starts if (took := getattr(start, name)) is not None]
        if seen:
            found[name] = median(seen)
    return StartTimes(**found)
