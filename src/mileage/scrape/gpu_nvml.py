"""This machine's GPUs by NVML: all figures of each, in few calls into the driver."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from mileage.core.errors import EngineError
from mileage.costmodel.gpu_names import gpu_of_driver, link_maxima
from mileage.measure.gpu_checks import checked
from mileage.measure.gpu_sample import GpuId, GpuOwner, GpuSample, Sharing
from mileage.scrape.gpu_gpm import GpmReader
from mileage.scrape.gpu_nvml_fields import FieldReader
from mileage.scrape.nvml import load_nvml, named_errors
from mileage.scrape.throttle_reasons import reasons_of

__all__ = ["NvmlTelemetry"]

T = TypeVar("T")
_RARELY: Final = 10
"""Memory, temperature, clocks and processes change slowly: each tenth look asks for them."""
_MIG: Final = " MIG "
_INSTANCES_MAX: Final = 16
_MEGA: Final = 1e6


class NvmlTelemetry:
    """Reads GPUs of this machine; `gpu_ids` as for `dcgm_samples`, () means all.

    Needs nvidia-ml-py (the extra `gpu`) and its driver; both are looked for at the first look, and
    after every error anew. `owner_of` tells the workload of a process. What changes slowly is
    asked for in each `seldom`-th look. `counters_only`: the counters between two looks (GPM) and
    the time in which kernels ran, nothing else. Between two GPUs it pauses for `pause_s`: the core
    is free then for who has waited for it. All calls may block; one at a time.
    """

    period_min_s = 0.1

    def __init__(
        self,
        gpu_ids: Sequence[str] = (),
        *,
        load: Callable[[], Any] = load_nvml,
        owner_of: Callable[[int], GpuOwner | None] = lambda _: None,
        seldom: int = _RARELY,
        counters_only: bool = False,
        pause_s: float = 0.0,
    ) -> None:
        self._gpu_ids, self._load, self._owner_of = tuple(gpu_ids), load, owner_of
        self._seldom, self._counters_only, self._pause_s = seldom, counters_only, pause_s
        self._nvml: Any = None
        self._units: list[_Unit] = []
        self._looks = 0

    def read(self, at_s: float) -> tuple[GpuSample, ...]:
        """One look, dated `at_s`. Raises EngineError."""
        nvml = self._nvml or self._load()
        try:
            with named_errors(nvml):
                if self._nvml is None:
                    nvml.nvmlInit()
                    self._nvml, self._looks = nvml, 0
                    for unit in self._open(nvml):
                        self._units.append(unit)  # so that close finds it where the next fails
                rare = self._looks % self._seldom == 0
                self._looks += 1
                return tuple(self._each(at_s, rare=rare))
        except EngineError:
            self.close()
            raise

    @property
    def begins(self) -> bool:
        """Whether the last look was the first since it was opened, and what GPM counts is known
        from the next on; never of GPUs without GPM."""
        return self._looks == 1 and any(unit.has_gpm for unit in self._units)

    def close(self) -> None:
        """Give everything back; a later read opens it anew."""
        nvml, self._nvml = self._nvml, None
        units, self._units = self._units, []
        if nvml is None:
            return
        for unit in units:
            with contextlib.suppress(nvml.NVMLError):
                unit.free()
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def _each(self, at_s: float, *, rare: bool) -> Iterator[GpuSample]:
        for place, unit in enumerate(self._units):
            if place and self._pause_s:
                time.sleep(self._pause_s)
            yield unit.counters(at_s) if self._counters_only else unit.read(at_s, rare=rare)

    def _open(self, nvml: Any) -> Iterator[_Unit]:
        for gpu_id in self._gpu_ids or map(str, range(nvml.nvmlDeviceGetCount())):
            name, _, wanted = gpu_id.partition("/")
            by_index, by_uuid = nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetHandleByUUID
            device = by_index(int(name)) if name.isdecimal() else by_uuid(name)
            uuid = _text(nvml.nvmlDeviceGetUUID(device))
            gpu = GpuId(uuid=uuid, number=str(nvml.nvmlDeviceGetIndex(device)))
            instances = dict(_instances(nvml, device))
            if wanted and wanted not in instances:
                raise EngineError("nvml", f"GPU {name} has no MIG instance {wanted}")
            for instance, handle in instances.items():
                if wanted in ("", instance):
                    yield _Unit(nvml, gpu, device, self._owner_of, instance, handle)
            if not instances:
                yield _Unit(nvml, gpu, device, self._owner_of)


class _Unit:
    """A GPU, or a MIG instance of one, whose `handle` then is another than its GPU's `device`."""

    def __init__(
        self,
        nvml: Any,
        gpu: GpuId,
        device: Any,
        owner_of: Callable[[int], GpuOwner | None],
        instance: str = "",
        handle: Any = None,
    ) -> None:
        self._nvml, self._device, self._owner_of = nvml, device, owner_of
        self._handle = device if handle is None else handle
        self._gpu = GpuId(gpu.host, gpu.uuid, gpu.number, instance)
        self._lacking: set[str] = set()
        self._rare: dict[str, Any] = {}
        name = _text(nvml.nvmlDeviceGetName(self._handle))
        self._model, _, self._profile = name.partition(_MIG)
        memory = self._ask("whole", lambda: int(nvml.nvmlDeviceGetMemoryInfo(device).total))
        nvlink, pcie = link_maxima(gpu_of_driver(self._model, memory_total_bytes=memory))
        self._maxima = {"nvlink_bytes_per_s_max": nvlink, "pcie_bytes_per_s_max": pcie}
        self._gpm: GpmReader | None = None
        support = self._ask("gpm", lambda: nvml.nvmlGpmQueryDeviceSupport(device))
        if support is not None and support.isSupportedDevice:
            number = int(instance) if instance else None
            self._gpm = self._ask("gpm", lambda: GpmReader(nvml, device, number))
        counters = self._gpm is None
        self._fields = None if instance else FieldReader(nvml, device, counters=counters)

    @property
    def has_gpm(self) -> bool:
        return self._gpm is not None

    def counters(self, at_s: float) -> GpuSample:
        return checked(GpuSample(gpu=self._gpu, at_s=at_s, **self._counted()))

    def read(self, at_s: float, *, rare: bool) -> GpuSample:
        nvml = self._nvml
        found: dict[str, Any] = dict(self._maxima)
        if self._fields is not None:
            fields = self._fields
            found.update(self._ask("fields", lambda: fields.read(at_s, rare=rare)) or {})
            if "power_w" not in found:  # older drivers have it here alone
                power_mw = self._ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(self._device))
                found["power_w"] = None if power_mw is None else power_mw / 1000
        found.update(self._counted())
        mask = self._ask(
            "reasons", lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._device))
        )
        found["throttle_reasons"] = reasons_of(mask)
        if rare:
            self._rare = self._seldom()
        model = self._model or None
        return checked(GpuSample(gpu=self._gpu, at_s=at_s, model=model, **found, **self._rare))

    def free(self) -> None:
        if self._gpm is not None:
            self._gpm.free()

    def _counted(self) -> dict[str, Any]:
        """What is counted between two looks."""
        nvml = self._nvml
        found: dict[str, Any] = {}
        if not self._gpu.instance:
            rates = self._ask("rates", lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle))
            if rates is not None:
                found["gpu_util_ratio"] = int(rates.gpu) / 100
                found["mem_copy_util_ratio"] = int(rates.memory) / 100
        if self._gpm is not None:
            found.update(self._ask("gpm", self._gpm.read) or {})
        return found

    def _seldom(self) -> dict[str, Any]:
        nvml, handle, device = self._nvml, self._handle, self._device
        memory = self._ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        sm_mhz = self._ask(
            "sm clock", lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)
        )
        memory_mhz = self._ask(
            "memory clock", lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)
        )
        temperature = self._ask(
            "temperature",
            lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
        )
        clients = self._ask("mps", lambda: nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle))
        running = self._ask("pids", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        pids = None if running is None else sorted({int(p.pid) for p in running})
        owners = {owner for pid in pids or () if (owner := self._owner_of(pid)) is not None}
        return {
            "memory_used_bytes": None if memory is None else int(memory.used),
            "memory_total_bytes": None if memory is None else int(memory.total),
            "sm_clock_hz": None if sm_mhz is None else sm_mhz * _MEGA,
            "memory_clock_hz": None if memory_mhz is None else memory_mhz * _MEGA,
            "temperature_c": None if temperature is None else float(temperature),
            "pids": None if pids is None else tuple(pids),
            "owners": tuple(sorted(owners)),
            "sharing": self._sharing(0 if clients is None else len(clients), len(owners)),
        }

    def _sharing(self, clients: int, owners: int) -> Sharing | None:
        if clients > 1:
            return Sharing("mps", clients, self._profile)
        if owners > 1:
            return Sharing("time_slicing", owners, self._profile)
        return Sharing("mig", profile=self._profile) if self._gpu.instance else None

    def _ask(self, name: str, call: Callable[[], T]) -> T | None:
        """None, and for ever, for what this GPU, its driver or our rights do not allow."""
        if name in self._lacking:
            return None
        nvml = self._nvml
        try:
            return call()
        except nvml.NVMLError as error:
            if error.value not in (
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_NO_PERMISSION,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                nvml.NVML_ERROR_INVALID_ARGUMENT,
            ):
                raise
            self._lacking.add(name)
            return None


def _instances(nvml: Any, device: Any) -> Iterator[tuple[str, Any]]:
    """Id and handle of each MIG GPU instance; none where the GPU is not partitioned."""
    try:
        if nvml.nvmlDeviceGetMigMode(device)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
    except nvml.NVMLError:
        return  # a GPU that cannot be
    seen = set()
    for place in range(min(_INSTANCES_MAX, nvml.nvmlDeviceGetMaxMigDeviceCount(device))):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:
                continue
            raise
        instance = str(nvml.nvmlDeviceGetGpuInstanceId(handle))
        if instance not in seen:  # else another compute instance of it
            seen.add(instance)
            yield instance, handle


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
