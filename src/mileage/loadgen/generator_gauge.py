"""GeneratorGauge: samples how hard this thread works, and how late its event loop is."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mileage.loadgen.generator_use import GeneratorUse, limit_reason
from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import rank

__all__ = ["BEAT_S", "GeneratorGauge"]

BEAT_S = 0.01
_PASSED_MIN_S = 0.1
"""Shares of a shorter time say nothing: one call that is refused at once keeps a thread busy for
all of a millisecond."""
_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_STAT = Path("/proc/stat")


class _Sample(msgspec.Struct, frozen=True):
    """Counters of this thread and of its cores, in seconds since whenever."""

    now_s: float
    thread_s: float
    waited_s: float | None
    cores: int
    busy_s: float | None


class GeneratorGauge:
    """Between `open` and `close` it notes beats; then it tells what the generator used."""

    def __init__(self) -> None:
        self._first: _Sample | None = None
        self._last: _Sample | None = None
        self._beats = array("d")

    @property
    def is_open(self) -> bool:
        """The measured window is on."""
        return self._first is not None and self._last is None

    @property
    def was_opened(self) -> bool:
        """The measured window has begun, and may be over."""
        return self._first is not None

    def open(self) -> None:
        """The measured window begins."""
        self._first = _sample()

    def close(self) -> None:
        """The measured window ends; harmless where it did, or never began."""
        if self.is_open:
            self._last = _sample()

    def beat(self, late_s: float) -> None:
        """A beat of the event loop came, so much too late."""
        self._beats.append(late_s)

    def use(self, records: Sequence[CallRecord], *, closed: bool) -> GeneratorUse:
        """The generator's use in the window; `records` are the run's."""
        measured = [record for record in records if record.phase == "measured"]
        taken = [(r.taken_s, r.scheduled_s) for r in measured]
        lags = _quantiles([at_s - due_s for at_s, due_s in taken if at_s is not None])
        beats = _quantiles(self._beats)
        use = GeneratorUse(
            lag_p50_s=lags[0],
            lag_p99_s=lags[1],
            lag_max_s=lags[2],
            loop_lag_p50_s=beats[0],
            loop_lag_p99_s=beats[1],
            loop_lag_max_s=beats[2],
            connections=sum(r.connected_s is not None for r in records),
        )
        use = _with_ratios(use, self._first, self._last)
        answers = [r.ended_s - r.scheduled_s for r in measured if r.outcome == "ok" and r.ended_s]
        reason = limit_reason(use, latency_p50_s=_quantiles(answers)[0], closed=closed)
        return msgspec.structs.replace(use, limited=reason is not None, reason=reason)


def _quantiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    ordered = sorted(values)
    count = len(ordered)
    return ordered[rank(0.5, count) - 1], ordered[rank(0.99, count) - 1], ordered[-1]


def _with_ratios(use: GeneratorUse, first: _Sample | None, last: _Sample | None) -> GeneratorUse:
    if first is None or last is None or last.now_s - first.now_s < _PASSED_MIN_S:
        return use
    passed_s = last.now_s - first.now_s
    waited_s = busy_s = None
    if first.waited_s is not None and last.waited_s is not None:
        waited_s = last.waited_s - first.waited_s
    if first.busy_s is not None and last.busy_s is not None:
        busy_s = last.busy_s - first.busy_s
    return msgspec.structs.replace(
        use,
        cpu_ratio=(last.thread_s - first.thread_s) / passed_s,
        run_queue_ratio=None if waited_s is None else waited_s / passed_s,
        cores_ratio=None if busy_s is None else min(1.0, busy_s / passed_s / last.cores),
    )


def _sample() -> _Sample:
    cores = os.sched_getaffinity(0)
    return _Sample(
        now_s=time.monotonic(),
        thread_s=time.thread_time(),
        waited_s=_waited_s(),
        cores=len(cores),
        busy_s=_busy_s(cores),
    )


def _waited_s() -> float | None:
    """Seconds that this thread was ready to run and did not; None where the kernel tells not."""
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _busy_s(cores: set[int]) -> float | None:
    """Seconds for which the cores ran anything, those that the hypervisor took included."""
    try:
        lines = _STAT.read_text().splitlines()
        ticks = 0
        for line in lines:
            name, *fields = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
                user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields[:8])
                ticks += user + nice + system + irq + softirq + steal
    except (OSError, ValueError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")
