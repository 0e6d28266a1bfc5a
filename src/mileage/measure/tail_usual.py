"""above_usual(): what pauses are beyond those that a process has all the time on its host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from msgspec.structs import replace

from mileage.measure.quantiles import quantile
from mileage.measure.tail_host import HostSample, Pause
from mileage.measure.tail_stage import Cause

__all__ = ["above_usual"]

_STEADY: Final[frozenset[Cause]] = frozenset({"run_queue", "page_fault", "softirq", "steal"})
"""Causes that a busy host has some of at any time."""
_AT_WORK_RATIO: Final = 0.1
_WINDOWS_MIN: Final = 10
"""Of fewer windows nothing is usual."""
_LEAST_S: Final = 0.0005


def above_usual(pauses: Sequence[Pause], samples: Sequence[HostSample]) -> list[Pause]:
    """The pauses of `host_pauses`, less what is usual of each cause for each process.

    Usual is the median, over the times between samples in which the process was at work, of the
    share that the cause took. A host on which every third moment goes to others is a slow host, and
    every stage is as much longer on it, in all requests alike: that is no reason for a tail. What
    is left of a pause after that is one.
    """
    spans = _work_spans_s(samples)
    groups: dict[tuple[Cause, int | None], list[Pause]] = {}
    for pause in pauses:
        if pause.cause in _STEADY:
            groups.setdefault((pause.cause, pause.pid), []).append(pause)
    usual = {key: _usual_ratio(group, spans.get(key[1], [])) for key, group in groups.items()}
    found = []
    for pause in pauses:
        less_s = usual.get((pause.cause, pause.pid), 0.0) * (pause.end_s - pause.start_s)
        if pause.cause not in _STEADY or not less_s:
            found.append(pause)
        elif pause.busy_s - less_s >= _LEAST_S:
            found.append(replace(pause, busy_s=pause.busy_s - less_s))
    return found


def _work_spans_s(samples: Sequence[HostSample]) -> dict[int | None, list[tuple[float, float]]]:
    """By process the times between samples in which it ran, or wanted to, for a tenth at least."""
    found: dict[int | None, list[tuple[float, float]]] = {}
    for before, after in pairwise(samples):
        earlier = {process.pid: process for process in before.processes}
        least_s = _AT_WORK_RATIO * (after.at_s - before.at_s)
        for process in after.processes:
            last = earlier.get(process.pid)
            if last is None or last.run_s is None or process.run_s is None:
                continue
            worked_s = process.run_s - last.run_s
            waited_s = sum(s - last.wait_s.get(tid, s) for tid, s in process.wait_s.items())
            if worked_s + waited_s >= least_s:
                found.setdefault(process.pid, []).append((before.at_s, after.at_s))
    return found


def _usual_ratio(group: Sequence[Pause], spans: Sequence[tuple[float, float]]) -> float:
    """The median share of the cause, over windows as long as its pauses' are."""
    length_s = median(pause.end_s - pause.start_s for pause in group)
    if length_s <= 0.0:
        return 0.0
    windows = round(sum(end - start for start, end in spans) / length_s)
    if windows < _WINDOWS_MIN:
        return 0.0
    ratios = [min(1.0, p.busy_s / (p.end_s - p.start_s)) for p in group if p.end_s > p.start_s]
    ratios += [0.0] * max(0, windows - len(ratios))
    return quantile(ratios, 0.5) or 0.0
