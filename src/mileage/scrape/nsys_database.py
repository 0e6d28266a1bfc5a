"""The database that Nsight Systems exports, `nsys export --type sqlite` -> its timeline."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from mileage.core.errors import TraceError
from mileage.doctor.collect.gpu_timeline import (
    Activity,
    GpuActivity,
    GpuTimeline,
    HostCall,
    StepMark,
    is_step,
    timeline_reading,
)
from mileage.doctor.collect.nsys_export import TOOL
from mileage.doctor.collect.profile_reading import ProfileReading

__all__ = ["read_nsys_database"]

_COPIES: Final[dict[int, Activity]] = {1: "h2d", 2: "d2h"}
"""CUPTI's kinds of copies; all others stay on devices, or go between them."""
_KERNELS: Final = (
    "SELECT start, end, deviceId, streamId, correlationId, globalPid >> 24, "
    "(SELECT value FROM StringIds WHERE id = demangledName) FROM CUPTI_ACTIVITY_KIND_KERNEL"
)
_MEMCPY: Final = (
    "SELECT start, end, deviceId, streamId, correlationId, globalPid >> 24, copyKind, bytes "
    "FROM CUPTI_ACTIVITY_KIND_MEMCPY"
)
_CALLS: Final = (
    "SELECT start, end, correlationId, globalTid >> 24, "
    "(SELECT value FROM StringIds WHERE id = nameId) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
)
_RANGES: Final = (
    "SELECT start, end, COALESCE(text, (SELECT value FROM StringIds WHERE id = textId)) "
    "FROM NVTX_EVENTS WHERE end IS NOT NULL"
)


def read_nsys_database(path: Path) -> ProfileReading:
    """Its kernels, copies, calls of the runtime and ranges; it is opened for reading alone.

    Raises:
        TraceError: it is broken, or a row (counted from 1) is not what its table says.
    """
    place = str(path)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = {
                name for (name,) in database.execute("SELECT name FROM sqlite_master").fetchall()
            }
            rows = _Rows(database, tables, place)
            timeline = GpuTimeline(
                activities=[*_kernels(rows), *_copies(rows)],
                calls=list(_calls(rows)),
                marks=list(_marks(rows)),
            )
    except sqlite3.Error as error:
        raise TraceError(place, 0, f"no database of nsys ({error})") from None
    return timeline_reading(timeline, tool=TOOL, place=place)


class _Rows:
    def __init__(self, database: sqlite3.Connection, tables: set[str], place: str) -> None:
        self._database, self._tables, self._place = database, tables, place

    def of(self, table: str, query: str, numbers: int) -> Iterator[tuple[Any, ...]]:
        """Rows whose first columns are numbers, 0 or more, the first two a start and an end."""
        if table not in self._tables:
            return
        for number, row in enumerate(self._database.execute(query), start=1):
            head = row[:numbers]
            if not all(isinstance(value, int) and value >= 0 for value in head) or row[1] < row[0]:
                message = f"row of {table}: got {head!r}, expected a start, an end and numbers"
                raise TraceError(self._place, number, message)
            yield row


def _kernels(rows: _Rows) -> Iterator[GpuActivity]:
    for start, end, device, stream, call, pid, name in rows.of(
        "CUPTI_ACTIVITY_KIND_KERNEL", _KERNELS, 6
    ):
        yield GpuActivity(start, end, str(name), "kernel", device, stream, _unique(pid, call))


def _copies(rows: _Rows) -> Iterator[GpuActivity]:
    for start, end, device, stream, call, pid, kind, size in rows.of(
        "CUPTI_ACTIVITY_KIND_MEMCPY", _MEMCPY, 8
    ):
        way = _COPIES.get(kind, "d2d")
        yield GpuActivity(start, end, way, way, device, stream, _unique(pid, call), size)


def _calls(rows: _Rows) -> Iterator[HostCall]:
    for start, end, call, pid, name in rows.of("CUPTI_ACTIVITY_KIND_RUNTIME", _CALLS, 4):
        yield HostCall(start, end, str(name), _unique(pid, call))


def _marks(rows: _Rows) -> Iterator[StepMark]:
    for start, end, name in rows.of("NVTX_EVENTS", _RANGES, 2):
        if isinstance(name, str) and is_step(name):
            yield StepMark(start, end, name)


def _unique(pid: int, call: int) -> int:
    """Calls are counted by each process on its own."""
    return pid << 40 | call
