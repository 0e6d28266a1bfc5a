"""A timeline of what GPUs did -> how much of it they were busy, with what, and what they waited."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final, Literal

import msgspec

from mileage.doctor.collect.busy_intervals import (
    Intervals,
    covered_ns,
    gaps_between,
    overlap_ns,
    union,
)
from mileage.doctor.collect.facts_document import facts_document, per_unit
from mileage.doctor.collect.kernel_name import kernel_kind
from mileage.doctor.collect.profile_reading import ProfileReading, kernel_times

__all__ = ["GpuActivity", "GpuTimeline", "HostCall", "StepMark", "is_step", "timeline_reading"]

Activity = Literal["kernel", "h2d", "d2h", "d2d", "memset"]

STEPS_MIN: Final = 3
"""Fewer steps tell no time of a step: the first one of a window is often cut off."""
SHORT_GAP_NS: Final = 1_000_000
"""Shorter gaps lie within and between steps; longer ones are also there for want of requests."""
_STEPS: Final = (
    re.compile(r"execute_(?:\w+_)?context_(?P<prefill>\d+)\(.*\)_generation_\d+\("),
    re.compile(r"execute_new_(?P<prefill>\d+)_cached_\d+$"),
    re.compile(r"step\[(?P<mode>[A-Z_]+)\b"),
    re.compile(r"gpu_model_runner: forward$"),
    re.compile(r"(?:execute_model|model_forward|forward_step)$"),
    re.compile(r"ProfilerStep#\d+$"),
)
"""Marks of one step: of vLLM now and before, of SGLang, of others. The first found counts."""
_GRAPH: Final = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_SYNC: Final = re.compile(r"(?:cuda|cu|hip)\w*Synchronize")
_LAUNCH: Final = re.compile(r"(?:cuda|cu|hip)(?:Ext|Module)?LaunchKernel")


class GpuActivity(msgspec.Struct, frozen=True, gc=False):
    """A kernel or a copy on a stream of a device; times in nanoseconds."""

    start_ns: int
    end_ns: int
    name: str
    kind: Activity
    device: int
    stream: int
    correlation: int | None = None
    """Number of the call that launched it."""
    size_bytes: int | None = None


class HostCall(msgspec.Struct, frozen=True, gc=False):
    """A call of the CUDA (or HIP) runtime by the host."""

    start_ns: int
    end_ns: int
    name: str
    correlation: int | None = None


class StepMark(msgspec.Struct, frozen=True, gc=False):
    """A range that an engine named; `on_gpu`: from its first kernel's start to its last's end."""

    start_ns: int
    end_ns: int
    name: str
    on_gpu: bool = False
    device: int = 0


class GpuTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """All that an export tells over time; `host_ops_ns` is time within operators on the CPU."""

    activities: Sequence[GpuActivity]
    calls: Sequence[HostCall] = ()
    marks: Sequence[StepMark] = ()
    host_ops: Sequence[tuple[int, int]] = ()


def is_step(name: str) -> bool:
    """Does an engine mark its steps by such a name?"""
    return any(pattern.match(name) for pattern in _STEPS)


def timeline_reading(timeline: GpuTimeline, *, tool: str, place: str) -> ProfileReading:
    """Facts and figures. The window is from the first activity's start to the last one's end.

    A GPU is busy while anything runs on any of its streams. Time of a step is the median of the
    time from one mark's start to the next one's; the gap is the median of what lies between the
    last activity of a step and the first of the next, on the device where it is longest.
    """
    if not timeline.activities:
        note = "nothing of a GPU is in it: was the profiler allowed to see one, and was there work?"
        return ProfileReading(tool=tool, place=place, facts={}, figures={}, notes=(note,))
    start_ns = min(a.start_ns for a in timeline.activities)
    end_ns = max(a.end_ns for a in timeline.activities)
    window_ns = max(1, end_ns - start_ns)
    devices = sorted({a.device for a in timeline.activities})
    busy = {d: union(_spans(timeline, devices=(d,))) for d in devices}
    marks = _steps(timeline.marks)
    signals: dict[str, Any] = {
        "gpu_util_ratio": per_unit([covered_ns(busy[d]) / window_ns for d in devices]),
        **_step_signals(timeline, marks),
        "graph_replay_ratio": _replayed(timeline.calls, marks),
    }
    notes = [] if "step_time_s" in signals else ["no marks of steps: their times are not known"]
    figures = {
        "window_s": window_ns / 1e9,
        "gpus_count": float(len(devices)),
        **_busy_figures(timeline, busy, window_ns),
        **_host_figures(timeline),
    }
    return ProfileReading(
        tool=tool,
        place=place,
        facts=facts_document(signals=signals),
        figures=figures,
        kernels=kernel_times(
            (a.name, a.end_ns - a.start_ns, 1) for a in timeline.activities if a.kind == "kernel"
        ),
        window_s=window_ns / 1e9,
        notes=tuple(notes),
    )


def _spans(
    timeline: GpuTimeline, *, devices: Iterable[int] | None = None, kind: str | None = None
) -> Iterable[tuple[int, int]]:
    wanted = None if devices is None else set(devices)
    return (
        (a.start_ns, a.end_ns)
        for a in timeline.activities
        if (wanted is None or a.device in wanted) and (kind is None or a.kind == kind)
    )


def _busy_figures(
    timeline: GpuTimeline, busy: dict[int, Intervals], window_ns: int
) -> dict[str, float]:
    """Shares of the window, means over the devices; gaps of all devices together."""
    gaps = [end - start for merged in busy.values() for start, end in gaps_between(merged)]
    whole_ns = window_ns * len(busy)
    short = sum(gap for gap in gaps if gap < SHORT_GAP_NS)
    figures = {
        "gpu_busy_ratio": sum(map(covered_ns, busy.values())) / whole_ns,
        "gpu_idle_short_gaps_ratio": short / whole_ns,
        "gpu_idle_long_gaps_ratio": (sum(gaps) - short) / whole_ns,
        "gpu_gaps_count": float(len(gaps)),
        "gpu_gap_longest_s": max(gaps, default=0) / 1e9,
    }
    talking = talking_alone = 0
    for device in busy:
        parts: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for a in timeline.activities:
            if a.device == device:
                is_talk = a.kind == "kernel" and kernel_kind(a.name) == "communication"
                parts[is_talk].append((a.start_ns, a.end_ns))
        talk = union(parts[True])
        talking += covered_ns(talk)
        talking_alone += covered_ns(talk) - overlap_ns(talk, union(parts[False]))
    figures["communication_ratio"] = talking / whole_ns
    figures["communication_alone_ratio"] = talking_alone / whole_ns
    for kind in ("h2d", "d2h", "d2d"):
        copied = sum(covered_ns(union(_spans(timeline, devices=(d,), kind=kind))) for d in busy)
        if copied:
            figures[f"copy_{kind}_ratio"] = copied / whole_ns
        sizes = [a.size_bytes for a in timeline.activities if a.kind == kind]
        if sizes and None not in sizes:
            figures[f"copy_{kind}_bytes_per_s"] = sum(filter(None, sizes)) / (window_ns / 1e9)
    return figures


def _host_figures(timeline: GpuTimeline) -> dict[str, float]:
    calls = timeline.calls
    graphs = {c.correlation for c in calls if _GRAPH.match(c.name) and c.correlation is not None}
    kernels = [a for a in timeline.activities if a.kind == "kernel"]
    figures: dict[str, float] = {}
    if calls:
        replays = sum(1 for c in calls if _GRAPH.match(c.name))
        launches = sum(1 for c in calls if _LAUNCH.match(c.name))
        figures["graph_launches_count"] = float(replays)
        figures["kernel_launches_count"] = float(launches)
        waited = union((c.start_ns, c.end_ns) for c in calls if _SYNC.match(c.name))
        figures["host_waits_for_gpu_s"] = covered_ns(waited) / 1e9
    total = sum(a.end_ns - a.start_ns for a in kernels)
    if total and calls:
        within = sum(a.end_ns - a.start_ns for a in kernels if a.correlation in graphs)
        figures["kernel_time_in_graphs_ratio"] = within / total
    if timeline.host_ops:
        figures["host_operators_s"] = covered_ns(union(timeline.host_ops)) / 1e9
    return figures


def _steps(marks: Sequence[StepMark]) -> list[StepMark]:
    """Marks of the first of the known spellings that marks enough steps, in order."""
    for pattern in _STEPS:
        found = [mark for mark in marks if pattern.match(mark.name)]
        if sum(not mark.on_gpu for mark in found) >= STEPS_MIN:
            return sorted(found, key=lambda mark: mark.start_ns)
    return []


def _step_signals(timeline: GpuTimeline, marks: Sequence[StepMark]) -> dict[str, float]:
    host = [mark for mark in marks if not mark.on_gpu]
    if len(host) < STEPS_MIN:
        return {}
    signals = {
        "step_time_s": median(b.start_ns - a.start_ns for a, b in pairwise(host)) / 1e9,
    }
    medians = []
    for device in sorted({a.device for a in timeline.activities}):
        gaps = [
            max(0, after[0] - before[1])
            for before, after in pairwise(_step_windows(timeline, host, marks, device))
        ]
        if len(gaps) >= STEPS_MIN - 1:
            medians.append(median(gaps))
    if medians:
        signals["step_host_gap_s"] = max(medians) / 1e9
    return signals


def _step_windows(
    timeline: GpuTimeline, host: Sequence[StepMark], marks: Sequence[StepMark], device: int
) -> Intervals:
    """Of each step that ran on the device its first activity's start and its last one's end.

    By the calls that launched them, where those are told: an activity belongs to the step in
    whose time it was launched, which is from its mark's start up to the next one's. Else by what
    the profiler itself laid over the GPU.
    """
    launched = {c.correlation: c.start_ns for c in timeline.calls if c.correlation is not None}
    starts = [mark.start_ns for mark in host]
    windows: dict[int, tuple[int, int]] = {}
    for a in timeline.activities:
        at_ns = None if a.correlation is None else launched.get(a.correlation)
        if a.device != device or at_ns is None:
            continue
        step = bisect_right(starts, at_ns) - 1
        if step >= 0:
            low, high = windows.get(step, (a.start_ns, a.end_ns))
            windows[step] = (min(low, a.start_ns), max(high, a.end_ns))
    if windows:
        return [windows[step] for step in sorted(windows)]
    return union(
        (mark.start_ns, mark.end_ns) for mark in marks if mark.on_gpu and mark.device == device
    )


def _replayed(calls: Sequence[HostCall], marks: Sequence[StepMark]) -> float | None:
    """Share of the decode steps in which a graph was launched; None where no marks tell them."""
    host = [mark for mark in marks if not mark.on_gpu]
    decodes = [(i, mark) for i, mark in enumerate(host) if _is_decode(mark.name)]
    if not decodes or not calls:
        return None
    graphs = sorted(c.start_ns for c in calls if _GRAPH.match(c.name))
    replayed = 0
    for i, mark in decodes:
        end_ns = host[i + 1].start_ns if i + 1 < len(host) else mark.end_ns
        at = bisect_right(graphs, mark.start_ns - 1)
        replayed += at < len(graphs) and graphs[at] < end_ns
    return replayed / len(decodes)


def _is_decode(name: str) -> bool:
    for pattern in _STEPS:
        match = pattern.match(name)
        if match is not None:
            parts = match.groupdict()
            return parts.get("prefill") == "0" or parts.get("mode") == "DECODE"
    return False
