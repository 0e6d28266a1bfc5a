"""What `ncu --csv` prints, as details, raw or a summary per kernel -> how kernels use the GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from mileage.core.errors import TraceError
from mileage.doctor.collect.kernel_name import kernel_kind
from mileage.doctor.collect.profile_numerals import NS_BY_UNIT, Numerals
from mileage.doctor.collect.profile_reading import KernelTime, ProfileReading
from mileage.doctor.collect.profile_table import ProfileTable

__all__ = ["NCU_MARKS", "TOOL", "ncu_notes", "ncu_reading"]

TOOL: Final = "Nsight Compute"
NCU_MARKS: Final[Sequence[frozenset[str]]] = (
    frozenset({"metric name", "metric unit", "metric value"}),
    frozenset({"metric name", "metric unit", "average"}),
    frozenset({"id", "kernel name"}),
)
"""Columns by which a table of ncu is known."""
_PERCENT: Final[Mapping[str, tuple[str, ...]]] = {
    "sm_active": ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed",),
    "sm_throughput": (
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "Compute (SM) Throughput",
        "Compute (SM) [%]",
        "SM [%]",
    ),
    "dram": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__cycles_active.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
    ),
    "occupancy": (
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "Achieved Occupancy",
    ),
}
"""Names of metrics, and what pages of other releases call them."""
_CYCLES: Final = (
    ("sm__cycles_active.avg", "sm__cycles_elapsed.max"),
    ("sm__cycles_active.avg", "sm__cycles_elapsed.avg"),
    ("SM Active Cycles", "Elapsed Cycles"),
)
_DURATION: Final = (
    "gpu__time_duration.sum",
    "gpu__time_duration.avg",
    "gpu__time_duration_measured_user",
    "Duration",
)
_DENIED: Final = re.compile(r"ERR_NVGPUCTRPERM")
_NONE: Final = re.compile(r"No kernels were profiled")
_TIME_MAX_NS: Final = 1e15


class _Launch(msgspec.Struct, frozen=True):
    """Metrics of one launch (or of a kernel's launches): value and unit by name."""

    line: int
    kernel: str
    count: int
    metrics: dict[str, tuple[str, str]]


def ncu_notes(text: str) -> tuple[str, ...]:
    """What the lines around a table say went wrong."""
    notes = []
    if _DENIED.search(text):
        notes.append(
            "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM): an administrator allows it "
            "with NVreg_RestrictProfilingToAdminUsers=0, or run it as root (CAP_SYS_ADMIN)"
        )
    if _NONE.search(text):
        notes.append("ncu profiled no kernel: its filters or --launch-skip left none")
    return tuple(notes)


def ncu_reading(
    tables: Sequence[ProfileTable], *, place: str, notes: Sequence[str] = ()
) -> ProfileReading:
    """Of each kernel how much of the GPU it uses while it runs.

    There are no facts in it: it does not tell which share of the time these kernels take. Together
    with a timeline it does: see `weighted_facts`.

    Raises:
        TraceError: a metric is not a number, or its unit is none that is known.
    """
    launches = [launch for table in tables for launch in _launches(table, place)]
    cells = (
        value
        for launch in launches[:200]
        for value, _ in launch.metrics.values()
        if len(value) < 40
    )
    numerals = Numerals(cells)
    groups: dict[str, list[KernelTime]] = {}
    for launch in launches:
        groups.setdefault(launch.kernel, []).append(_kernel(launch, numerals, place))
    kernels = sorted(map(_together, groups.values()), key=lambda k: (-k.total_s, k.name))
    figures = {"kernels_profiled_count": float(sum(kernel.count for kernel in kernels))}
    for key, of in _RATIOS.items():
        value = _weighted(kernels, of)
        if value is not None:
            figures[f"profiled_{key}"] = value
    alone = "of profiled kernels alone: read it together with a timeline to know their share"
    return ProfileReading(
        tool=TOOL,
        place=place,
        facts={},
        figures=figures,
        kernels=tuple(kernels),
        notes=(*notes, alone),
    )


def _launches(table: ProfileTable, place: str) -> list[_Launch]:
    at = {name.strip().lower(): i for i, name in reversed(list(enumerate(table.header)))}
    return _long(table, at, place) if "metric name" in at else _wide(table, at)


def _long(table: ProfileTable, at: Mapping[str, int], place: str) -> list[_Launch]:
    """One row for each metric."""
    value_at = at["metric value"] if "metric value" in at else at["average"]
    found: dict[tuple[str, ...], _Launch] = {}
    keys = [at[name] for name in ("id", "process id", "kernel name", "context") if name in at]
    for line, row in table.rows:
        key = tuple(row[i] for i in keys)
        launch = found.get(key)
        if launch is None:
            kernel = row[at["kernel name"]] if "kernel name" in at else "kernel"
            invoked = row[at["invocations"]] if "invocations" in at else "1"
            count = Numerals().number(invoked)
            if count is None or not 0 < count < 1e12:
                raise TraceError(place, line, f"invocations: got {invoked[:40]!r}, not a count")
            launch = found[key] = _Launch(line, kernel, round(count), {})
        launch.metrics.setdefault(row[at["metric name"]], (row[value_at], row[at["metric unit"]]))
    return list(found.values())


def _wide(table: ProfileTable, at: Mapping[str, int]) -> list[_Launch]:
    """One row for each launch; the row of units comes first, and has no ID."""
    units = ("",) * len(table.header)
    found = []
    for line, row in table.rows:
        if not row[at["id"]].strip():
            units = row
            continue
        metrics = dict(zip(table.header, zip(row, units, strict=True), strict=True))
        found.append(_Launch(line, row[at["kernel name"]], 1, metrics))
    return found


def _kernel(launch: _Launch, numerals: Numerals, place: str) -> KernelTime:
    def number(name: str) -> float | None:
        text = launch.metrics[name][0].strip()
        if text.lower() in ("", "n/a", "nan", "(!) n/a", "inf"):
            return None
        value = numerals.number(text)
        if value is None or value < 0:
            message = f"{name}: got {text[:60]!r}, expected a number, 0 or more"
            raise TraceError(place, launch.line, message)
        return value

    def ratio(names: Sequence[str]) -> float | None:
        for name in names:
            if name in launch.metrics and launch.metrics[name][1] in ("%", ""):
                value = number(name)
                return None if value is None else min(1.0, value / 100)
        return None

    duration_ns = 0.0
    for name in (name for name in _DURATION if name in launch.metrics):
        unit = launch.metrics[name][1].strip().lower() or "ns"
        if unit not in NS_BY_UNIT:
            message = f"{name}: got {unit[:40]!r}, expected a unit of time"
            raise TraceError(place, launch.line, message)
        duration_ns = (number(name) or 0.0) * NS_BY_UNIT[unit] * launch.count
        break
    if duration_ns > _TIME_MAX_NS:
        raise TraceError(place, launch.line, f"a kernel of {duration_ns:g} ns is none")
    active = ratio(_PERCENT["sm_active"])
    for part, whole in _CYCLES:
        if active is None and part in launch.metrics and whole in launch.metrics:
            above, below = number(part), number(whole)
            active = min(1.0, above / below) if above is not None and below else None
    occupancy = ratio(_PERCENT["occupancy"])
    return KernelTime(
        name=launch.kernel,
        kind=kernel_kind(launch.kernel),
        total_s=duration_ns / 1e9,
        count=launch.count,
        sm_active_ratio=active,
        sm_throughput_ratio=ratio(_PERCENT["sm_throughput"]),
        dram_active_ratio=ratio(_PERCENT["dram"]),
        # Resident warps count over the time that an SM works; here over all of the time.
        sm_occupancy_ratio=None if occupancy is None or active is None else occupancy * active,
    )


_RATIOS: Final[Mapping[str, Callable[[KernelTime], float | None]]] = {
    "sm_active_ratio": lambda kernel: kernel.sm_active_ratio,
    "sm_throughput_ratio": lambda kernel: kernel.sm_throughput_ratio,
    "dram_active_ratio": lambda kernel: kernel.dram_active_ratio,
    "sm_occupancy_ratio": lambda kernel: kernel.sm_occupancy_ratio,
}


def _together(kernels: Sequence[KernelTime]) -> KernelTime:
    if len(kernels) == 1:
        return kernels[0]
    return KernelTime(
        name=kernels[0].name,
        kind=kernels[0].kind,
        total_s=sum(kernel.total_s for kernel in kernels),
        count=sum(kernel.count for kernel in kernels),
        **{key: _weighted(kernels, of) for key, of in _RATIOS.items()},
    )


def _weighted(
    kernels: Sequence[KernelTime], of: Callable[[KernelTime], float | None]
) -> float | None:
    """Mean by time, over the kernels that tell it; by launches where no duration is told."""
    known = [(kernel, value) for kernel in kernels if (value := of(kernel)) is not None]
    for weight in (lambda k: k.total_s, lambda k: float(k.count)):
        total = sum(weight(kernel) for kernel, _ in known)
        if total > 0:
            return sum(weight(kernel) * value for kernel, value in known) / total
    return None
