"""A machine's NVML for tests of telemetry: fields, several GPM metrics, MIG instances, MPS."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from tests.support.nvml_library import NvmlLibrary

__all__ = ["TelemetryLibrary"]

_MIG_BASE = 1000
"""Address of the handle of instance i of GPU g: (g + 1) * 1000 + i."""


class TelemetryLibrary(NvmlLibrary):
    """As its base, with the functions that telemetry calls.

    GPM gives what `gpm` says, by metric id; of SM_UTIL, where `busy` has it, the percentage by the
    GPU's index, or (index, MIG instance). It checks that the samples are filled, and of one GPU.
    `fields`, by id: (value type, value), or a code of NVML where it is an error; those of one GPU
    alone are in `gpu_fields`, by (index, id). `calls` counts every function.
    """

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self.model = "NVIDIA H100 80GB HBM3"
        self.gpm: dict[int, float] = {}
        self.busy: dict[Any, float] = {}
        self.metric_fails = 0
        self.fields: dict[int, tuple[int, float] | int] = {}
        self.gpu_fields: dict[tuple[int, int], tuple[int, float] | int] = {}
        self.memory_bytes: dict[int, int] = {}
        self.kernel_percent: dict[int, int] = {}
        self.memory_percent: dict[int, int] = {}
        self.reasons: dict[int, int] = {}
        self.instances: dict[int, dict[int, str]] = {}
        """MIG profiles by instance id, by GPU."""
        self.mps: dict[int, list[int]] = {}
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        function = super().__getattr__(name)

        def counted(*arguments: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            return function(*arguments)

        return counted

    def _gpu(self, device: Any) -> int:
        address = _address(device)
        return (address // _MIG_BASE if address >= _MIG_BASE else address) - 1

    def _nvmlDeviceGetIndex(self, device: Any, index: Any) -> None:  # noqa: N802
        index._obj.value = self._gpu(device)

    def _nvmlDeviceGetName(self, device: Any, name: Any, length: Any) -> None:  # noqa: N802
        address = _address(device)
        text = self.model
        if address >= _MIG_BASE:
            text += f" MIG {self.instances[self._gpu(device)][address % _MIG_BASE]}"
        name.value = text.encode()

    def _nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> None:  # noqa: N802
        memory._obj.used = self.memory_bytes.get(self._gpu(device), 7)
        memory._obj.total = 80 * 2**30

    def _nvmlDeviceGetUtilizationRates(self, device: Any, rates: Any) -> None:  # noqa: N802
        gpu = self._gpu(device)
        rates._obj.gpu = self.kernel_percent[gpu]
        rates._obj.memory = self.memory_percent.get(gpu, 0)

    def _nvmlDeviceGetFieldValues(self, device: Any, count: Any, values: Any) -> None:  # noqa: N802
        array = values._obj
        for place in range(count.value):
            entry = array[place]
            lacks = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
            found = self.gpu_fields.get((self._gpu(device), entry.fieldId))
            found = self.fields.get(entry.fieldId, lacks) if found is None else found
            if isinstance(found, int):
                entry.nvmlReturn = found
                continue
            entry.nvmlReturn, entry.valueType = pynvml.NVML_SUCCESS, found[0]
            member = {
                pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
                pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
                pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
            }[found[0]]
            setattr(entry.value, member, found[1] if member == "dVal" else int(found[1]))

    def _nvmlGpmMetricsGet(self, asked: Any) -> None:  # noqa: N802
        asked = asked._obj
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        first, second = _address(asked.sample1), _address(asked.sample2)
        assert first != second
        whose = self.samples[first]
        assert whose is not None
        assert whose == self.samples[second]
        for place in range(asked.numMetrics):
            metric = asked.metrics[place]
            value = self.gpm.get(metric.metricId)
            if metric.metricId == pynvml.NVML_GPM_METRIC_SM_UTIL:
                value = self.busy.get(whose, value)
            lacks = pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.nvmlReturn = lacks if value is None else self.metric_fails
            metric.value = value or 0.0

    def _nvmlDeviceGetCurrentClocksThrottleReasons(  # noqa: N802
        self, device: Any, reasons: Any
    ) -> None:
        reasons._obj.value = self.reasons.get(self._gpu(device), 0)

    def _nvmlDeviceGetClockInfo(self, device: Any, kind: Any, clock: Any) -> None:  # noqa: N802
        clock._obj.value = 1980 if kind.value == pynvml.NVML_CLOCK_SM else 2619

    def _nvmlDeviceGetTemperature(self, device: Any, kind: Any, degrees: Any) -> None:  # noqa: N802
        degrees._obj.value = 61

    def _nvmlDeviceGetMPSComputeRunningProcesses_v3(  # noqa: N802
        self, device: Any, count: Any, processes: Any
    ) -> int | None:
        return _fill(self.mps.get(self._gpu(device), []), count, processes)

    def _nvmlDeviceGetMigMode(self, device: Any, mode: Any, pending: Any) -> None:  # noqa: N802
        mode._obj.value = int(self._gpu(device) in self.instances)

    def _nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> None:  # noqa: N802
        count._obj.value = 7

    def _nvmlDeviceGetMigDeviceHandleByIndex(  # noqa: N802
        self, device: Any, index: Any, handle: Any
    ) -> int | None:
        gpu = self._gpu(device)
        ids = sorted(self.instances[gpu])
        if index.value >= len(ids):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        pointer = ctypes.cast(ctypes.pointer(handle._obj), ctypes.POINTER(ctypes.c_void_p))
        pointer[0] = (gpu + 1) * _MIG_BASE + ids[index.value]
        return None

    def _nvmlDeviceGetGpuInstanceId(self, device: Any, instance: Any) -> None:  # noqa: N802
        instance._obj.value = _address(device) % _MIG_BASE


def _fill(pids: list[int], count: Any, processes: Any) -> int | None:
    room, count._obj.value = count._obj.value, len(pids)
    if not pids:
        return None
    if processes is None or room < len(pids):
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for place, pid in enumerate(pids):
        processes[place].pid = pid
    return None


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
