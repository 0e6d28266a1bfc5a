"""Reports of `nsys stats`, as CSV or JSON -> what they tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from mileage.core.errors import TraceError
from mileage.doctor.collect.gpu_timeline import (
    Activity,
    GpuActivity,
    GpuTimeline,
    HostCall,
    StepMark,
    timeline_reading,
)
from mileage.doctor.collect.kernel_name import kernel_kind
from mileage.doctor.collect.profile_numerals import (
    BYTES_BY_UNIT,
    NS_BY_UNIT,
    Numerals,
    unit_of,
)
from mileage.doctor.collect.profile_reading import KernelTime, ProfileReading, kernel_times
from mileage.doctor.collect.profile_table import ProfileTable

__all__ = ["NSYS_MARKS", "TOOL", "copy_kind", "nsys_reading"]

TOOL: Final = "Nsight Systems"
NSYS_MARKS: Final[Sequence[frozenset[str]]] = (
    frozenset({"total time", "instances", "name"}),
    frozenset({"total time", "num calls", "name"}),
    frozenset({"total time", "instances", "range"}),
    frozenset({"total time", "count", "operation"}),
    frozenset({"total time", "operations", "operation"}),
    frozenset({"start", "duration", "name"}),
)
"""Columns by which a table of nsys is known."""
TIME_MAX_NS: Final = 1e18
_Report = Literal["kernels", "calls", "ranges", "copies", "gpu_trace", "call_trace", "range_trace"]
_NEEDED: Final[Mapping[_Report, str]] = {
    "kernels": "instances",
    "calls": "num calls",
    "ranges": "instances",
}
_DEVICE: Final = re.compile(r"\((\d{1,6})\)\s*$")
_COPY: Final[tuple[tuple[Activity, re.Pattern[str]], ...]] = (
    ("memset", re.compile(r"memset", re.IGNORECASE)),
    ("h2d", re.compile(r"h(ost)?\W?to\W?d(evice)?", re.IGNORECASE)),
    ("d2h", re.compile(r"d(evice)?\W?to\W?h(ost)?", re.IGNORECASE)),
    ("d2d", re.compile(r"memcpy|d\W?to\W?d|p\W?to\W?p", re.IGNORECASE)),
)


def copy_kind(name: str) -> Activity:
    """What a copy's or fill's name says: `[CUDA memcpy HtoD]`, `Memcpy DtoH (Device -> Pinned)`."""
    return next((kind for kind, pattern in _COPY if pattern.search(name)), "d2d")


def nsys_reading(tables: Sequence[ProfileTable], *, place: str) -> ProfileReading:
    """All reports of one export together.

    A trace (`cuda_gpu_trace`, better with `cuda_api_trace` and `nvtx_pushpop_trace`) tells how much
    of the time GPUs were busy; sums alone tell no window, so they make figures and no facts.

    Raises:
        TraceError: a cell is not what its column is, with the line (or record) that it is in.
    """
    found = [(_report(table), _Columns(table, place)) for table in tables]
    activities: list[GpuActivity] = []
    calls: list[HostCall] = []
    marks: list[StepMark] = []
    for report, columns in found:
        if report == "gpu_trace":
            activities += _activities(columns)
        elif report == "call_trace":
            calls += _calls(columns)
        elif report == "range_trace":
            marks += _marks(columns)
    figures, kernels = _sums(found)
    if activities:
        timeline = GpuTimeline(activities=activities, calls=calls, marks=marks)
        told = timeline_reading(timeline, tool=TOOL, place=place)
        return msgspec.structs.replace(told, figures={**figures, **told.figures})
    note = (
        "sums tell no idle time: export cuda_gpu_trace, cuda_api_trace and nvtx_pushpop_trace too"
    )
    return ProfileReading(
        tool=TOOL, place=place, facts={}, figures=figures, kernels=kernels, notes=(note,)
    )


class _Columns:
    """A table whose cells are read by name and unit."""

    def __init__(self, table: ProfileTable, place: str) -> None:
        self.rows, self._place = table.rows, place
        named = [unit_of(header) for header in table.header]
        self._at = {name: (at, unit) for at, (name, unit) in reversed(list(enumerate(named)))}
        self._numerals = Numerals(
            cell for _, row in table.rows[:1000] for cell in row if len(cell) < 40
        )

    def text(self, row: tuple[int, tuple[str, ...]], name: str) -> str:
        at = self._at.get(name)
        return "" if at is None else row[1][at[0]].strip()

    def has(self, name: str) -> bool:
        return name in self._at

    def number(self, row: tuple[int, tuple[str, ...]], name: str) -> float:
        value = self._numerals.number(self.text(row, name))
        if value is None or value < 0:
            raise self._error(row, name, "a number, 0 or more")
        return value

    def time_ns(self, row: tuple[int, tuple[str, ...]], name: str) -> int:
        unit = self._at[name][1] or "ns"
        if unit not in NS_BY_UNIT:
            raise self._error(row, f"{name} ({unit})", "a unit of time in the column's name")
        value = self.number(row, name) * NS_BY_UNIT[unit]
        if value > TIME_MAX_NS:
            raise self._error(row, name, "a time")
        return round(value)

    def maybe(self, row: tuple[int, tuple[str, ...]], name: str) -> float | None:
        """A number, or None where the cell is empty or there is no such column."""
        value = self._numerals.number(self.text(row, name))
        return value if value is not None and 0 <= value < TIME_MAX_NS else None

    def size_bytes(self, row: tuple[int, tuple[str, ...]], name: str) -> int | None:
        value = self.maybe(row, name)
        scale = BYTES_BY_UNIT.get(self._at[name][1] or "b") if name in self._at else None
        return None if value is None or scale is None else round(value * scale)

    def _error(self, row: tuple[int, tuple[str, ...]], name: str, expected: str) -> TraceError:
        return TraceError(
            self._place, row[0], f"{name}: got {self.text(row, name)[:60]!r}, expected {expected}"
        )


def _report(table: ProfileTable) -> _Report:
    names = {unit_of(header)[0] for header in table.header}
    if "start" in names:
        if names & {"durchild", "rangeid", "lvl", "numchild", "range"}:
            return "range_trace"
        return "call_trace" if names & {"result", "tid"} else "gpu_trace"
    if "operation" in names:
        return "copies"
    if "range" in names:
        return "ranges"
    return "calls" if "num calls" in names else "kernels"


def _activities(columns: _Columns) -> list[GpuActivity]:
    devices: dict[str, int] = {}
    found = []
    for row in columns.rows:
        name, start_ns = columns.text(row, "name"), columns.time_ns(row, "start")
        device = columns.text(row, "device")
        match = _DEVICE.search(device)
        number = int(match[1]) if match else devices.setdefault(device, len(devices))
        correlation = columns.maybe(row, "corrid")
        copies = name.startswith("[") or name.lower().startswith(("memcpy", "memset"))
        found.append(
            GpuActivity(
                start_ns=start_ns,
                end_ns=start_ns + columns.time_ns(row, "duration"),
                name=name,
                kind=copy_kind(name) if copies else "kernel",
                device=number,
                stream=int(columns.maybe(row, "strm") or 0),
                correlation=None if correlation is None else int(correlation),
                size_bytes=columns.size_bytes(row, "bytes") if copies else None,
            )
        )
    return found


def _calls(columns: _Columns) -> list[HostCall]:
    found = []
    for row in columns.rows:
        start_ns, correlation = columns.time_ns(row, "start"), columns.maybe(row, "corrid")
        found.append(
            HostCall(
                start_ns,
                start_ns + columns.time_ns(row, "duration"),
                columns.text(row, "name"),
                None if correlation is None else int(correlation),
            )
        )
    return found


def _marks(columns: _Columns) -> list[StepMark]:
    name = "name" if columns.has("name") else "range"
    found = []
    for row in columns.rows:
        start_ns = columns.time_ns(row, "start")
        end_ns = start_ns + columns.time_ns(row, "duration")
        found.append(StepMark(start_ns, end_ns, columns.text(row, name).lstrip(":")))
    return found


def _sums(
    found: Sequence[tuple[_Report, _Columns]],
) -> tuple[dict[str, float], tuple[KernelTime, ...]]:
    figures: dict[str, float] = {}
    launches: list[tuple[str, int, int]] = []
    for report, columns in found:
        for row in columns.rows:
            if report not in _NEEDED:
                break
            total_ns = columns.time_ns(row, "total time")
            count = round(columns.number(row, _NEEDED[report]))
            name = columns.text(row, "range" if report == "ranges" else "name")
            if report == "kernels":
                launches.append((name, total_ns, count))
            elif report == "calls":
                _add_call(figures, name, total_ns, count)
            elif count and name.lstrip(":").startswith("execute_"):
                figures["step_range_count"] = figures.get("step_range_count", 0.0) + count
                figures["step_range_s"] = figures.get("step_range_s", 0.0) + total_ns / 1e9
    kernels = kernel_times(launches)
    total_s = sum(kernel.total_s for kernel in kernels)
    if total_s:
        figures["kernel_s"] = total_s
        talk_s = sum(k.total_s for k in kernels if kernel_kind(k.name) == "communication")
        figures["communication_of_kernels_ratio"] = talk_s / total_s
    return figures, kernels


def _add_call(figures: dict[str, float], name: str, total_ns: int, count: int) -> None:
    for part, key in (
        ("GraphLaunch", "graph_launches_count"),
        ("LaunchKernel", "kernel_launches_count"),
    ):
        if part in name:
            figures[key] = figures.get(key, 0.0) + count
    if "Synchronize" in name:
        figures["host_waits_for_gpu_s"] = figures.get("host_waits_for_gpu_s", 0.0) + total_ns / 1e9
