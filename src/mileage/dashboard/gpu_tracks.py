"""GpuTracks: what was seen of GPUs as curves, each GPU a process of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mileage.dashboard.request_tracks import TraceCounts
from mileage.dashboard.trace_writer import TraceWriter

__all__ = ["GpuPoint", "GpuTracks"]


class GpuPoint(NamedTuple):
    """One GPU's figures between two times, nanoseconds since 1970; None is not known."""

    gpu: str
    start_ns: int
    end_ns: int
    bandwidth_ratio: float | None = None
    idle_ratio: float | None = None
    power_w: float | None = None


_CURVES = (
    ("bandwidth use", "ratio", "bandwidth_ratio"),
    ("idle cycles", "ratio", "idle_ratio"),
    ("power", "W", "power_w"),
)


class _Gpu:
    """One GPU's tracks. A curve is there from the first value on that is known."""

    def __init__(self, writer: TraceWriter, name: str) -> None:
        self._writer = writer
        self._process = writer.process(f"GPU {name}")
        self.seen = writer.track(self._process, "seen")
        self._counters: dict[str, int] = {}
        self.start_ns = self.end_ns = 0

    def count(self, point: GpuPoint) -> None:
        for name, unit, field in _CURVES:
            value: float | None = getattr(point, field)
            if value is None:
                continue
            counter = self._counters.get(name)
            if counter is None:
                counter = self._writer.counter(self._process, name, unit)
                self._counters[name] = counter
            self._writer.count(counter, point.start_ns, value)


class GpuTracks:
    """Writes points, those of each GPU in order of time, on as many tracks as there are GPUs.

    A curve of a trace has a value until its next one. So each GPU has a track `seen`, too, with a
    slice for each stretch of time that points follow each other in without a gap: where there is
    none, the curves mean nothing.
    """

    def __init__(self, writer: TraceWriter, counts: TraceCounts, *, source: str) -> None:
        """`source` is the name of those slices."""
        self._writer, self._counts, self._source = writer, counts, source
        self._gpus: dict[str, _Gpu] = {}

    def write(self, points: Iterable[GpuPoint]) -> int:
        """Write all of them; no others follow. Returns how many GPUs they were of."""
        for point in points:
            gpu = self._gpus.get(point.gpu)
            if gpu is None:
                gpu = self._gpus[point.gpu] = _Gpu(self._writer, point.gpu)
                gpu.start_ns = point.start_ns
            elif point.start_ns > gpu.end_ns:
                self._slice(gpu)
                gpu.start_ns = point.start_ns
            gpu.end_ns = max(gpu.end_ns, point.end_ns)
            gpu.count(point)
        for gpu in self._gpus.values():
            self._slice(gpu)
        return len(self._gpus)

    def _slice(self, gpu: _Gpu) -> None:
        self._writer.begin(gpu.seen, self._source, gpu.start_ns, {})
        self._writer.end(gpu.seen, gpu.end_ns)
        self._counts.saw(gpu.start_ns, gpu.end_ns)
