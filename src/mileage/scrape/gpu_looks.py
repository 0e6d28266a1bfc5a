"""GpuLooks: a look at GPUs from an event loop, which neither driver nor exporter holds up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuSample
from mileage.scrape.gpu_nvml import NvmlTelemetry

__all__ = ["GpuLooks", "NvmlLooks", "wholes"]

_CLOSE_WAIT_S: Final = 1.0


class GpuLooks(Protocol):
    """Looks at GPUs when asked to."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    @property
    def begins(self) -> bool:
        """Whether the last look was the first of counters that are compared with one before."""
        ...

    async def look(self, at_s: float) -> tuple[GpuSample, ...]:
        """One look, dated `at_s`. Raises EngineError where nothing can be seen now."""
        ...

    def close(self) -> None:
        """Give everything back; a later look opens it anew."""
        ...


class NvmlLooks:
    """This machine's GPUs: each look in a thread, one at a time."""

    name = "nvml"

    def __init__(self, gpus: NvmlTelemetry) -> None:
        self._gpus = gpus
        self._lock = threading.Lock()

    @property
    def begins(self) -> bool:
        """See GpuLooks."""
        return self._gpus.begins

    async def look(self, at_s: float) -> tuple[GpuSample, ...]:
        """See GpuLooks."""
        if self._lock.locked():  # a driver that hangs must not take a thread every second
            raise EngineError(self.name, "the last reading has not come back yet")
        return await asyncio.to_thread(self._look, at_s)

    def close(self) -> None:
        """Give everything back, unless a call into the driver hangs."""
        if self._lock.acquire(timeout=_CLOSE_WAIT_S):
            try:
                self._gpus.close()
            finally:
                self._lock.release()

    def _look(self, at_s: float) -> tuple[GpuSample, ...]:
        with self._lock:
            return self._gpus.read(at_s)


def wholes(samples: Sequence[GpuSample], figure: str) -> list[GpuSample]:
    """One sample for each GPU, or each instance of one that does not tell `figure` as a whole: so
    that none counts twice."""
    told = {
        s.gpu
        for s in samples
        if not s.gpu.instance
        and (getattr(s, figure) is not None or any(d.startswith(f"{figure}:") for d in s.doubts))
    }
    parted = {s.gpu.whole for s in samples if s.gpu.instance} - told
    return [s for s in samples if s.gpu.whole not in (told if s.gpu.instance else parted)]
