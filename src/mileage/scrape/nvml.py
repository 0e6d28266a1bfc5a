"""NVML: the share of streaming multiprocessors in use on this machine's GPUs, by NVML's GPM."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mileage.core.errors import EngineError

__all__ = ["NvmlSource"]

_CLOSE_WAIT_S = 1.0
_SOURCE = "nvml"


class NvmlSource:
    """Reads NVML_GPM_METRIC_SM_UTIL, the counter behind DCGM's SM_ACTIVE; Hopper GPUs and newer.

    `gpu_ids` as in `dcgm.sm_active`; () means all of this machine. GPM compares two samples, so the
    first reading only begins. nvmlDeviceGetUtilizationRates, which every GPU has, is no substitute:
    it is 100 % as soon as any kernel runs. Needs nvidia-ml-py (the extra `gpu`) and its driver;
    both are looked for at the first reading, and after every error anew.
    """

    def __init__(self, gpu_ids: Sequence[str], *, load: Callable[[], Any] | None = None) -> None:
        self._gpu_ids, self._load = tuple(gpu_ids), load or _pynvml
        self._lock = threading.Lock()
        self._nvml: Any = None
        self._gpus: list[_Gpu] = []

    async def read(self) -> float | None:
        """Mean over the GPUs since the last reading; None the first time. Raises EngineError."""
        if self._lock.locked():  # a driver that hangs must not take a thread every second
            raise EngineError(_SOURCE, "the last reading has not come back yet")
        return await asyncio.to_thread(self._read)

    def close(self) -> None:
        """Give everything back, unless a call into the driver hangs."""
        if self._lock.acquire(timeout=_CLOSE_WAIT_S):
            try:
                self._release()
            finally:
                self._lock.release()

    def _read(self) -> float | None:
        with self._lock:
            nvml = self._nvml or self._load()
            try:
                with _named(nvml):
                    if self._nvml is None:
                        nvml.nvmlInit()
                        self._nvml = nvml
                        for gpu, instance in self._which():
                            self._gpus.append(_Gpu(nvml, gpu, instance))
                    ratios = [gpu.read() for gpu in self._gpus]
            except EngineError:
                self._release()
                raise
        known = [ratio for ratio in ratios if ratio is not None]
        return sum(known) / len(known) if known and len(known) == len(ratios) else None

    def _which(self) -> Iterator[tuple[str, int | None]]:
        """Index or UUID, and MIG instance, of each GPU."""
        for gpu_id in self._gpu_ids or map(str, range(self._nvml.nvmlDeviceGetCount())):
            gpu, _, instance = gpu_id.partition("/")
            yield gpu, int(instance) if instance else None

    def _release(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is None:
            return
        gpus, self._gpus = self._gpus, []
        for gpu in gpus:
            with contextlib.suppress(nvml.NVMLError):
                gpu.free()
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class _Gpu:
    """A GPU or a MIG instance, and the samples of its counters that are compared."""

    def __init__(self, nvml: Any, gpu: str, instance: int | None) -> None:
        self._nvml, self._instance = nvml, instance
        if gpu.isdecimal():
            self._device = nvml.nvmlDeviceGetHandleByIndex(int(gpu))
        else:
            self._device = nvml.nvmlDeviceGetHandleByUUID(gpu)
        if not nvml.nvmlGpmQueryDeviceSupport(self._device).isSupportedDevice:
            raise EngineError(
                _SOURCE, f"GPU {gpu} has no GPM (Hopper and newer have it): use a DCGM exporter"
            )
        self._old, self._new = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._began = False

    def read(self) -> float | None:
        """Share in use since the last call, 0..1; None the first time."""
        nvml = self._nvml
        self._old, self._new = self._new, self._old
        if self._instance is None:
            nvml.nvmlGpmSampleGet(self._device, self._new)
        else:
            nvml.nvmlGpmMigSampleGet(self._device, self._instance, self._new)
        if not self._began:
            self._began = True
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = self._old, self._new
        metric = asked.metrics[0]
        metric.metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        nvml.nvmlGpmMetricsGet(asked)
        if metric.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(metric.nvmlReturn)
        ratio = metric.value / 100
        if not 0 <= ratio <= 1.01:  # also NaN
            raise EngineError(_SOURCE, f"SM_UTIL of {metric.value:g} % is not possible")
        return min(1.0, float(ratio))

    def free(self) -> None:
        """Free the samples."""
        self._nvml.nvmlGpmSampleFree(self._old)
        self._nvml.nvmlGpmSampleFree(self._new)


@contextlib.contextmanager
def _named(nvml: Any) -> Iterator[None]:
    """Make NVML's errors ours."""
    try:
        yield
    except nvml.NVMLError as error:
        raise EngineError(_SOURCE, str(error)) from error


def _pynvml() -> Any:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        message = "nvidia-ml-py is not installed: pip install 'mileage[gpu]'"
        raise EngineError(_SOURCE, message) from error
    if not hasattr(nvml, "nvmlGpmMetricsGet"):
        raise EngineError(_SOURCE, "nvidia-ml-py is too old: 12.535 or newer is needed")
    return nvml
