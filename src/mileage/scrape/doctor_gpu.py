"""GPUs for the doctor: exporters' pages and this machine's driver, looked at for a while."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.core.errors import EngineError
from mileage.doctor.collect.gpu_facts import GpuLimits
from mileage.measure.exposition import parse
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.scrape.gpu_dcgm_source import DcgmPage
from mileage.scrape.gpu_looks import GpuLooks, NvmlLooks
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.nvml import load_nvml, named_errors
from mileage.wire.fetch import Fetch

__all__ = ["GpuRecord", "dcgm_limits", "nvml_limits", "watch_gpus"]

PERIOD_S: Final = 1.0
SAMPLES_MAX: Final = 200_000
TIMEOUT_S: Final = 5.0
_DRIVER: Final = Path("/proc/driver/nvidia")
_LIMITS: Final = {
    "DCGM_FI_DEV_XID_ERRORS": ("last_xid", 1.0),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": ("slowdown_temp_c", 1.0),
    "DCGM_FI_DEV_MAX_SM_CLOCK": ("sm_clock_max_hz", 1e6),
}
_LIMIT_SAMPLES_MAX: Final = 50_000
_TEMPERATURES_C: Final = (30.0, 150.0)


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen; for each source that told nothing why."""

    samples: list[GpuSample]
    limits: list[GpuLimits]
    notes: dict[str, str]


async def watch_gpus(
    dcgm_urls: Sequence[str],
    *,
    window_s: float,
    fetch: Fetch,
    local: bool = False,
    clock: Callable[[], float] = time.monotonic,
    has_driver: Callable[[], bool] = _DRIVER.exists,
    period_s: float = PERIOD_S,
) -> GpuRecord:
    """Look once a second at each exporter, and with `local` at this machine's GPUs, where it has a
    driver for some. A page that is as it was before is no new look. Never raises but for a
    cancellation: a source that fails is told in the notes, and its looks so far count."""
    sources: list[_Source] = [_Dcgm(url, fetch) for url in dict.fromkeys(dcgm_urls)]
    if local and has_driver():
        sources.append(_Nvml())
    ends_s = clock() + window_s
    try:
        while True:
            await asyncio.gather(*(source.look(clock()) for source in sources))
            left_s = ends_s - clock()
            if left_s <= 0 or not sources:
                break
            await asyncio.sleep(min(period_s, left_s))
    finally:
        for source in sources:
            source.close()
    return GpuRecord(
        samples=[sample for source in sources for sample in source.samples],
        limits=[limits for source in sources for limits in source.limits],
        notes={
            source.name: source.error
            for source in sources
            if source.error is not None and not source.samples
        },
    )


def dcgm_limits(body: bytes) -> list[GpuLimits]:
    """Limits and errors on a page of an exporter, of each GPU that it tells some of."""
    found: dict[GpuId, dict[str, float]] = {}
    for sample in parse(body, _LIMITS, samples_max=_LIMIT_SAMPLES_MAX).samples:
        attribute, times = _LIMITS[sample.name]
        value = sample.value
        if value is None or not 0 <= value < 1e6:  # blank values of DCGM are beyond
            continue
        if attribute == "slowdown_temp_c" and not _TEMPERATURES_C[0] < value < _TEMPERATURES_C[1]:
            continue
        labels = sample.labels
        gpu = GpuId(
            labels.get("Hostname", labels.get("hostname", "")),
            labels.get("UUID", labels.get("uuid", "")),
            labels.get("gpu", ""),
        )
        found.setdefault(gpu, {})[attribute] = value * times
    return [GpuLimits(gpu=gpu, **values) for gpu, values in found.items()]


def nvml_limits(*, load: Callable[[], Any] = load_nvml) -> list[GpuLimits]:
    """Limits of this machine's GPUs. Raises EngineError where the driver does not answer."""
    nvml = load()
    found: list[GpuLimits] = []
    with named_errors(nvml):
        nvml.nvmlInit()
        try:
            for number in range(nvml.nvmlDeviceGetCount()):
                device = nvml.nvmlDeviceGetHandleByIndex(number)
                uuid = nvml.nvmlDeviceGetUUID(device)
                clock_mhz = slow_c = None
                with contextlib.suppress(nvml.NVMLError):
                    clock_mhz = nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)
                with contextlib.suppress(nvml.NVMLError):
                    slow_c = nvml.nvmlDeviceGetTemperatureThreshold(
                        device, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
                    )
                found.append(
                    GpuLimits(
                        gpu=GpuId(
                            uuid=uuid.decode() if isinstance(uuid, bytes) else uuid,
                            number=str(number),
                        ),
                        sm_clock_max_hz=None if clock_mhz is None else clock_mhz * 1e6,
                        slowdown_temp_c=slow_c,
                    )
                )
        finally:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
    return found


class _Source(ABC):
    """Looks of one source, and the last error that ended one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples: list[GpuSample] = []
        self.limits: list[GpuLimits] = []
        self.error: str | None = None

    async def look(self, at_s: float) -> None:
        """Add one look, where it can be taken."""
        try:
            self._keep(await self._read(at_s))
        except EngineError as error:
            self.error = error.message

    @abstractmethod
    async def _read(self, at_s: float) -> Sequence[GpuSample]:
        """One look; empty where nothing is new. Raises EngineError."""

    @abstractmethod
    def close(self) -> None:
        """Nothing is looked at any more."""

    def _keep(self, samples: Sequence[GpuSample]) -> None:
        self.samples += samples
        if len(self.samples) > SAMPLES_MAX:
            del self.samples[: len(samples)]


class _Dcgm(_Source):
    def __init__(self, url: str, fetch: Fetch) -> None:
        self._page = DcgmPage(url, (), fetch=fetch, timeout_s=TIMEOUT_S)
        super().__init__(f"dcgm {self._page.name}")
        self._last: bytes | None = None

    async def _read(self, at_s: float) -> Sequence[GpuSample]:
        body = await self._page.body()
        if body == self._last:
            return ()
        samples = self._page.samples(body, at_s)
        self._last, self.limits = body, dcgm_limits(body)
        return samples

    def close(self) -> None:
        self._page.close()


class _Nvml(_Source):
    def __init__(self) -> None:
        super().__init__("nvml")
        self._looks: GpuLooks = NvmlLooks(NvmlTelemetry(seldom=1))
        self._is_first = True

    async def _read(self, at_s: float) -> Sequence[GpuSample]:
        samples = await self._looks.look(at_s)
        if self._is_first:
            self._is_first = False
            self.limits = await asyncio.to_thread(nvml_limits)
        return samples

    def close(self) -> None:
        self._looks.close()
