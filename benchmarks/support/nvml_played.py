"""A machine with eight GPUs for benchmarks: nvidia-ml-py on a library that is compiled here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["GPUS", "PlayedNvml", "dcgm_page"]

GPUS = 8
_DRIVER = "libnvidia-ml.so.1"
"""As nvidia-ml-py asks the loader for it."""
_SOURCE = Path(__file__).with_suffix(".c")
_FIELDS = {
    "DCGM_FI_DEV_SM_CLOCK": 1980,
    "DCGM_FI_DEV_MEM_CLOCK": 2619,
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_POWER_USAGE": 572.191,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 128996013,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
    "DCGM_FI_DEV_GPU_UTIL": 97,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 41,
    "DCGM_FI_DEV_ENC_UTIL": 0,
    "DCGM_FI_DEV_DEC_UTIL": 0,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_FB_FREE": 48000,
    "DCGM_FI_DEV_FB_USED": 32429,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.98,
    "DCGM_FI_PROF_SM_ACTIVE": 0.912597,
    "DCGM_FI_PROF_SM_OCCUPANCY": 0.2445,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.279364,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.213685,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 67358889,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 873509672,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 4991556833,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 4991558873,
}


class PlayedNvml:
    """nvidia-ml-py on the compiled library. Raises OSError without a C compiler."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise OSError("no C compiler")
        library = directory / "libnvml_played.so"
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)],
            check=True,
            capture_output=True,
        )
        (directory / _DRIVER).symlink_to(library.name)
        self._directory = directory
        self._library = ctypes.CDLL(str(library))

    def cost(self, call_us: float) -> None:
        """CPU time that each call burns from now on."""
        self._library.played_cost(ctypes.c_long(round(call_us * 1000)))

    def environment(self, call_us: float) -> dict[str, str]:
        """With this a program finds the library where it looks for the driver's; cost as above."""
        return {
            "LD_LIBRARY_PATH": str(self._directory),
            "NVML_PLAYED_COST_NS": f"{round(call_us * 1000)}",
        }

    def load(self) -> Any:
        """The module, on this library in place of the driver's."""
        import pynvml  # an extra: only what plays it needs it

        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlLib = self._library
        return pynvml


def dcgm_page() -> bytes:
    """The page of an exporter for eight GPUs with pods: its usual fields and those of profiling."""
    lines = []
    for field, value in _FIELDS.items():
        lines += [f"# HELP {field} A figure.", f"# TYPE {field} gauge"]
        for gpu in range(GPUS):
            labels = (
                f'gpu="{gpu}",UUID="GPU-00000000-0000-0000-0000-00000000000{gpu}",'
                f'pci_bus_id="00000000:{gpu}3:00.0",device="nvidia{gpu}",'
                'modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",'
                'DCGM_FI_DRIVER_VERSION="550.54.15",container="vllm",namespace="serving",'
                f'pod="vllm-{gpu}"'
            )
            lines.append(f"{field}{{{labels}}} {value}")
    return ("\n".join(lines) + "\n").encode()
