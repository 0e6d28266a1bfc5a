"""HostSampler: looks at processes and their host twenty times a second, in a thread of its own."""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mileage.measure.tail_host import HostSample
from mileage.measure.tail_stage import Role
from mileage.scrape.host_reader import HostReader

__all__ = ["HostSampler", "HostSeries"]

_PERIOD_S = 0.05
_PERIOD_MAX_S = 1.0
_COST_RATIO_MAX = 0.01
"""Of one CPU; the sampler slows down above it."""
_SAMPLES_MAX = 40_000
"""Past it every other sample is dropped, and half as many are taken."""
_REFRESH_S = 1.0
_SMOOTHING = 0.2
_FAULT_PAGES = 256
_STOP_WAIT_S = 5.0


class HostSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What was sampled. Times are on the sampler's clock."""

    samples: tuple[HostSample, ...]
    missing: dict[str, str]
    """What could not be read, and why."""
    minor_fault_s: float | None
    """What one minor page fault costs here, as measured at the start."""
    period_s: float
    """Between samples, at the end."""
    cpu_ratio: float
    """CPU that sampling used, of one CPU."""


class HostSampler:
    """Samples from `start` to `stop`, by a clock that should be time.monotonic.

    The CPU time of each look is measured, and the time between looks is made longer, up to a
    second, where they would use more than 1 % of one CPU.
    """

    def __init__(
        self,
        pids: Mapping[Role, Sequence[int]],
        *,
        clock: Callable[[], float] = time.monotonic,
        period_s: float = _PERIOD_S,
        reader: Callable[..., HostReader] = HostReader,
    ) -> None:
        self._reader = reader(pids, clock=clock)
        self._clock, self._period_s, self._least_s = clock, period_s, period_s
        self._samples: list[HostSample] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)
        self._began_s = self._cpu_s = 0.0
        self._cost_s: float | None = None
        self._minor_fault_s: float | None = None

    def start(self) -> None:
        """Begin."""
        self._minor_fault_s = _fault_cost_s()
        self._began_s = self._clock()
        self._thread.start()

    def stop(self) -> HostSeries:
        """End, with a last look."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_WAIT_S)
        self._reader.close()
        lasted_s = max(1e-9, self._clock() - self._began_s)
        return HostSeries(
            samples=tuple(self._samples),
            missing=dict(self._reader.missing),
            minor_fault_s=self._minor_fault_s,
            period_s=self._period_s,
            cpu_ratio=self._cpu_s / lasted_s,
        )

    def _run(self) -> None:
        due_s = refresh_s = self._clock()
        while True:
            last = self._ending.is_set()
            began_s = time.thread_time()
            if self._clock() >= refresh_s:
                self._reader.refresh()
                refresh_s = self._clock() + _REFRESH_S
            self.take(self._reader.look(), time.thread_time() - began_s)
            if last:
                self._cpu_s = time.thread_time()
                return
            due_s = max(due_s + self._period_s, self._clock())
            self._ending.wait(due_s - self._clock())

    def take(self, sample: HostSample, cost_s: float) -> None:
        """Keep a sample that took so much CPU, and set the pace by that."""
        self._samples.append(sample)
        if len(self._samples) >= _SAMPLES_MAX:
            del self._samples[1::2]
            self._least_s *= 2
        known = cost_s if self._cost_s is None else self._cost_s
        self._cost_s = known + _SMOOTHING * (cost_s - known)
        needed_s = self._cost_s / _COST_RATIO_MAX
        self._period_s = max(self._least_s, min(_PERIOD_MAX_S, needed_s))


def _fault_cost_s() -> float:
    """Seconds for one minor fault: the first touch of a fresh page."""
    with mmap.mmap(-1, _FAULT_PAGES * mmap.PAGESIZE) as fresh:
        began_s = time.perf_counter()
        for page in range(_FAULT_PAGES):
            fresh[page * mmap.PAGESIZE] = 1
        return (time.perf_counter() - began_s) / _FAULT_PAGES
