"""A machine's NVML for tests: nvidia-ml-py's own code on a C library that is played by Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

__all__ = ["NvmlLibrary"]

_CALLED = "nvml"


class NvmlLibrary:
    """GPUs `GPU-0`, `GPU-1`, ... with GPM's samples.

    It checks what real NVML relies on: that samples are its own, and given back. Signatures are
    those of nvml.h: every function takes ctypes values, and answers by reference and with a code.
    """

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.fails: dict[str, int] = {}
        """Code that a function returns."""
        self.supported = True
        self.sessions = 0
        self.samples: dict[int, Any] = {}
        """Address of each sample that is not given back -> whose counters it has, None: empty."""
        self.running: dict[int, list[int]] = {}
        """Processes that compute on a GPU, by its index."""
        self.power_mw: dict[int, int] = {}
        self._next = 0x1000
        self._keep: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith(_CALLED):
            raise AttributeError(name)
        function: Callable[..., int | None] = getattr(self, f"_{name}")

        def call(*arguments: Any) -> int:
            if name in self.fails:
                return self.fails[name]
            try:
                code = function(*arguments)
            except KeyError:
                return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
            return int(pynvml.NVML_SUCCESS if code is None else code)

        return call

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """nvidia-ml-py has loaded this library."""
        before = pynvml.nvmlLib
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlLib = self
        try:
            yield
        finally:
            pynvml.nvmlLib = before
            pynvml._nvmlGetFunctionPointer_cache.clear()

    # --- the functions ------------------------------------------------------------------------

    def _nvmlInitWithFlags(self, flags: int) -> None:  # noqa: N802
        self.sessions += 1

    def _nvmlShutdown(self) -> None:  # noqa: N802
        self.sessions -= 1

    def _nvmlErrorString(self, code: Any) -> bytes:  # noqa: N802
        return b"an error"

    def _nvmlDeviceGetCount_v2(self, count: Any) -> None:  # noqa: N802
        count._obj.value = self.gpus

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> None:  # noqa: N802
        self._device(index.value, device._obj)

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> None:  # noqa: N802
        self._device(int(uuid.value.removeprefix(b"GPU-")), device._obj)

    def _device(self, index: int, device: Any) -> None:
        if index >= self.gpus:
            raise KeyError(index)
        ctypes.cast(ctypes.pointer(device), ctypes.POINTER(ctypes.c_void_p))[0] = index + 1

    def _nvmlDeviceGetUUID(self, device: Any, uuid: Any, length: Any) -> None:  # noqa: N802
        uuid.value = b"GPU-%d" % (_address(device) - 1)

    def _nvmlDeviceGetComputeRunningProcesses_v3(  # noqa: N802
        self, device: Any, count: Any, processes: Any
    ) -> int | None:
        pids = self.running.get(_address(device) - 1, [])
        if not pids:
            count._obj.value = 0
            return None
        room, count._obj.value = count._obj.value, len(pids)
        if processes is None or room < len(pids):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for place, pid in enumerate(pids):
            processes[place].pid = pid
        return None

    def _nvmlDeviceGetPowerUsage(self, device: Any, power: Any) -> None:  # noqa: N802
        power._obj.value = self.power_mw[_address(device) - 1]

    def _nvmlGpmQueryDeviceSupport(self, device: Any, support: Any) -> None:  # noqa: N802
        assert support._obj.version == pynvml.NVML_GPM_SUPPORT_VERSION
        support._obj.isSupportedDevice = int(self.supported)

    def _nvmlGpmSampleAlloc(self, sample: Any) -> None:  # noqa: N802
        self._next += 0x10
        self.samples[self._next] = None
        pointer = ctypes.cast(ctypes.pointer(sample._obj), ctypes.POINTER(ctypes.c_void_p))
        pointer[0] = self._next

    def _nvmlGpmSampleFree(self, sample: Any) -> None:  # noqa: N802
        del self.samples[_address(sample)]

    def _nvmlGpmSampleGet(self, device: Any, sample: Any) -> None:  # noqa: N802
        assert _address(sample) in self.samples
        self.samples[_address(sample)] = _address(device) - 1

    def _nvmlGpmMigSampleGet(self, device: Any, instance: int, sample: Any) -> None:  # noqa: N802
        assert _address(sample) in self.samples
        self.samples[_address(sample)] = (_address(device) - 1, instance)


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
