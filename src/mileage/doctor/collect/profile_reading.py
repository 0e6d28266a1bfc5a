"""What a profiler's export tells: facts, figures for people, and the kernels that took longest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument
from mileage.doctor.collect.kernel_name import KernelKind, kernel_kind

__all__ = ["KernelTime", "ProfileReading", "kernel_times"]


class KernelTime(msgspec.Struct, frozen=True, kw_only=True):
    """All launches of a kernel together. Ratios are means, weighted by time; None: not told."""

    name: str
    kind: KernelKind
    total_s: float
    count: int
    sm_active_ratio: float | None = None
    sm_throughput_ratio: float | None = None
    dram_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None


class ProfileReading(msgspec.Struct, frozen=True, kw_only=True):
    """One export. `figures` have their units in their names; `notes` say what it cannot tell."""

    tool: str
    place: str
    facts: FactsDocument
    figures: dict[str, float]
    kernels: tuple[KernelTime, ...] = ()
    """The longest first."""
    window_s: float | None = None
    """Length of the timeline; None of what has none."""
    functions: tuple[tuple[str, float], ...] = ()
    """Functions of the host and their shares of its time, the largest first."""
    notes: tuple[str, ...] = ()


def kernel_times(launches: Iterable[tuple[str, int, int]]) -> tuple[KernelTime, ...]:
    """Sums by name of (name, nanoseconds, count), the longest first."""
    sums: dict[str, tuple[int, int]] = {}
    for name, length_ns, count in launches:
        total_ns, launched = sums.get(name, (0, 0))
        sums[name] = (total_ns + length_ns, launched + count)
    return _ordered(sums)


def _ordered(sums: Mapping[str, tuple[int, int]]) -> tuple[KernelTime, ...]:
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(
        KernelTime(name=name, kind=kernel_kind(name), total_s=total_ns / 1e9, count=count)
        for name, (total_ns, count) in ordered
    )
