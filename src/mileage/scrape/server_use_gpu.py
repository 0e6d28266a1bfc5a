"""GPUs of the server under test together: their use, memory and energy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal

import msgspec

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuSample
from mileage.scrape.busy import DCGM, NVML, GpuCounter, busy_mean
from mileage.scrape.gpu_dcgm_source import DcgmPage
from mileage.scrape.gpu_looks import GpuLooks, NvmlLooks, wholes
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.nvml import load_nvml, named_errors
from mileage.wire.fetch import Fetch

__all__ = ["GpuLook", "GpuUse", "dcgm_use", "gpus_of", "nvml_use"]

_FIGURES: Final = (
    "sm_active_ratio",
    "gpu_util_ratio",
    "memory_used_bytes",
    "energy_j",
    "power_w",
)
_UNIT: Final = "a part of a GPU (MIG) has no figure of its own"


class GpuLook(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the GPUs together; `missing` says why a figure is None.

    `energy_total_j` counts from some time on; where it is unknown `power_w` may be known.
    """

    utilisation_ratio: float | None = None
    utilisation_basis: Literal["gpu_sm_active", "gpu_kernel_time"] = "gpu_sm_active"
    memory_bytes: int | None = None
    energy_total_j: float | None = None
    power_w: float | None = None
    missing: dict[Literal["utilisation_ratio", "memory_bytes", "energy_j"], str] = {}


class GpuUse:
    """Looks at all GPUs of a reader as one.

    GPUs without counters of their multiprocessors have the share of time in which some kernel ran,
    under its own name; which of the two it is, the first that is known settles.
    """

    def __init__(
        self, looks: GpuLooks, counter: GpuCounter, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._looks, self._counter, self._clock = looks, counter, clock
        self._basis: Literal["gpu_sm_active", "gpu_kernel_time"] | None = None

    async def look(self) -> GpuLook:
        """One look. Raises EngineError where nothing can be seen now."""
        samples = await self._looks.look(self._clock())
        missing: dict[Literal["utilisation_ratio", "memory_bytes", "energy_j"], str] = {}
        ratio = None
        if not self._looks.begins:
            ratio, why = self._utilisation(samples)
            if why is not None:
                missing["utilisation_ratio"] = why
        memory = _total(samples, "memory_used_bytes")
        if memory is None:
            missing["memory_bytes"] = f"{self._looks.name} does not tell it"
        energy_j, power_w = _total(samples, "energy_j"), _total(samples, "power_w")
        if energy_j is None and power_w is None:
            parted = any(sample.gpu.instance for sample in samples)
            why = f"{self._looks.name} tells neither energy nor power"
            missing["energy_j"] = _UNIT if parted else why
        return GpuLook(
            utilisation_ratio=ratio,
            utilisation_basis=self._basis or "gpu_sm_active",
            memory_bytes=None if memory is None else round(memory),
            energy_total_j=energy_j,
            power_w=power_w if energy_j is None else None,
            missing=missing,
        )

    def close(self) -> None:
        """No look follows."""
        self._looks.close()

    def _utilisation(self, samples: Sequence[GpuSample]) -> tuple[float | None, str | None]:
        """The ratio, or why there is none."""
        try:
            ratio = busy_mean(samples, self._counter)
        except ValueError as error:
            kernels = [sample.gpu_util_ratio for sample in wholes(samples, "gpu_util_ratio")]
            known = [each for each in kernels if each is not None]
            if self._basis == "gpu_sm_active" or not known or len(known) < len(kernels):
                return None, str(error)
            self._basis = "gpu_kernel_time"
            return math.fsum(known) / len(known), None
        if self._basis == "gpu_kernel_time":
            return None, f"{self._looks.name} began to tell another figure in the run"
        self._basis = "gpu_sm_active"
        return ratio, None


def nvml_use(gpu_ids: Sequence[str], *, load: Callable[[], Any] = load_nvml) -> GpuUse:
    """GPUs of this machine, named as for `dcgm_samples`; () means all."""
    return GpuUse(NvmlLooks(NvmlTelemetry(gpu_ids, load=load, seldom=1)), NVML)


def dcgm_use(url: str, gpu_ids: Sequence[str], *, fetch: Fetch, timeout_s: float) -> GpuUse:
    """GPUs on a page of a DCGM exporter, named as for `dcgm_samples`; () means all of the page."""
    page = DcgmPage(url, gpu_ids, fetch=fetch, timeout_s=timeout_s, figures=_FIGURES)
    return GpuUse(page, DCGM)


def gpus_of(pids: Collection[int], *, load: Callable[[], Any] = load_nvml) -> tuple[str, ...]:
    """UUIDs of this machine's GPUs on which one of the processes runs; () without a GPU or NVML.

    NVML tells processes by the numbers of the machine's own namespace: in a container they do not
    match, and the GPUs must be named.
    """
    try:
        nvml = load()
        with named_errors(nvml):
            nvml.nvmlInit()
            try:
                return tuple(_gpus_of(nvml, pids))
            finally:
                nvml.nvmlShutdown()
    except EngineError:
        return ()


def _gpus_of(nvml: Any, pids: Collection[int]) -> list[str]:
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        running = nvml.nvmlDeviceGetComputeRunningProcesses(device)
        if any(process.pid in pids for process in running):
            found.append(str(nvml.nvmlDeviceGetUUID(device)))
    return found


def _total(samples: Sequence[GpuSample], figure: str) -> float | None:
    """The sum over the GPUs; None where one of them does not tell."""
    values = [getattr(sample, figure) for sample in wholes(samples, figure)]
    known = [float(value) for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None
