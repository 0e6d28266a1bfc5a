"""GPUs of a server under test: nvidia-ml-py on a played driver, and a DCGM exporter's page."""

from __future__ import annotations

import asyncio
from typing import Any

import pynvml
import pytest

from mileage.core.errors import EngineError
from mileage.scrape.server_use_gpu import GpuLook, dcgm_use, gpus_of, nvml_use
from mileage.wire.fetch import FetchResponse
from tests.support.nvml_telemetry import TelemetryLibrary

ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
ULL = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG


def looks(library: TelemetryLibrary, *gpu_ids: str, times: int = 1) -> list[GpuLook]:
    """Look so many times; all that was taken of the driver is given back."""

    async def look() -> list[GpuLook]:
        use = nvml_use(gpu_ids)
        try:
            return [await use.look() for _ in range(times)]
        finally:
            use.close()

    with library.loaded():
        found = asyncio.run(look())
    assert library.sessions == 0
    assert library.samples == {}
    return found


def machine() -> TelemetryLibrary:
    library = TelemetryLibrary(2)
    library.busy = {0: 20.0, 1: 60.0}
    library.memory_bytes = {0: 1000, 1: 500}
    library.gpu_fields = {(0, ENERGY): (ULL, 7000), (1, ENERGY): (ULL, 3000)}
    library.power_mw = {0: 250_000, 1: 150_000}
    library.kernel_percent = {0: 100, 1: 50}
    return library


def test_all_gpus_together() -> None:
    first, second = looks(machine(), times=2)
    assert first.utilisation_ratio is None  # its counters are compared with an earlier sample
    assert second.utilisation_ratio == pytest.approx(0.4)
    assert second.utilisation_basis == "gpu_sm_active"
    assert (second.memory_bytes, second.energy_total_j) == (1500, 10.0)


def test_only_the_gpus_that_are_named() -> None:
    (look,) = looks(machine(), "GPU-1")
    assert (look.memory_bytes, look.energy_total_j) == (500, 3.0)


def test_a_gpu_without_counters_tells_how_long_kernels_ran_and_says_so() -> None:
    library = machine()
    library.supported = False
    first, second = looks(library, times=2)
    assert first.utilisation_ratio == second.utilisation_ratio == pytest.approx(0.75)
    assert second.utilisation_basis == "gpu_kernel_time"


def test_a_gpu_that_counts_no_energy_tells_its_power() -> None:
    library = machine()
    library.gpu_fields.clear()
    (look,) = looks(library)
    assert (look.energy_total_j, look.power_w) == (None, 400.0)


def test_what_a_driver_does_not_tell_is_none() -> None:
    library = machine()
    for name in ("MemoryInfo", "FieldValues", "PowerUsage"):
        library.fails[f"nvmlDeviceGet{name}"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    (look,) = looks(library)
    assert (look.memory_bytes, look.energy_total_j, look.power_w) == (None, None, None)
    assert set(look.missing) == {"memory_bytes", "energy_j"}


def test_a_part_of_a_gpu_counts_no_energy_of_its_own() -> None:
    library = machine()
    library.instances[0] = {1: "1g.10gb", 2: "1g.10gb"}
    library.busy = {(0, 1): 30.0, (0, 2): 90.0}
    _, look = looks(library, "0/1", times=2)
    assert look.utilisation_ratio == pytest.approx(0.3)
    assert look.memory_bytes == 1000
    assert look.missing == {"energy_j": "a part of a GPU (MIG) has no figure of its own"}


def test_an_unknown_gpu_is_an_error() -> None:
    with pytest.raises(EngineError, match="nvml"):
        looks(machine(), "7")


def test_the_gpus_that_processes_run_on() -> None:
    library = machine()
    library.running = {0: [11, 12], 1: [12, 13]}
    with library.loaded():
        assert gpus_of({12}) == ("GPU-0", "GPU-1")
        assert gpus_of({13, 99}) == ("GPU-1",)
        assert gpus_of({99}) == ()
    assert library.sessions == 0


def test_a_machine_without_a_driver_has_no_gpus() -> None:
    def none() -> Any:
        raise EngineError("nvml", "not installed")

    assert gpus_of({1}, load=none) == ()


PAGE = """
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="h"} 0.25
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-b",Hostname="h"} 0.75
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="h"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",Hostname="h"} 70
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",Hostname="h"} 10
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",Hostname="h"} 30
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",Hostname="h"} 5000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-b",Hostname="h"} 9223372036854775794
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="h"} 300.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",Hostname="h"} 200
"""


def exporter(*pages: str, status: int = 200, gpu_ids: tuple[str, ...] = ()) -> list[GpuLook]:
    """Look once at each page."""
    answers = iter(pages)

    async def fetch(url: str, **options: Any) -> FetchResponse:
        return FetchResponse(status, (), next(answers).encode())

    async def look() -> list[GpuLook]:
        use = dcgm_use("http://x/metrics", gpu_ids, fetch=fetch, timeout_s=1.0)
        return [await use.look() for _ in pages]

    return asyncio.run(look())


def without(*fields: str) -> str:
    return "\n".join(line for line in PAGE.splitlines() if not line.startswith(fields))


def test_an_exporters_page() -> None:
    (look,) = exporter(PAGE)
    assert (look.utilisation_ratio, look.utilisation_basis) == (0.5, "gpu_sm_active")
    assert look.memory_bytes == 40 * 2**20
    # One of the two does not know its energy, so both are taken by their power.
    assert (look.energy_total_j, look.power_w) == (None, 500.5)
    (look,) = exporter(PAGE, gpu_ids=("0",))
    assert (look.energy_total_j, look.power_w, look.memory_bytes) == (5.0, None, 10 * 2**20)


def test_an_exporter_without_the_profiling_fields() -> None:
    first, second = exporter(without("DCGM_FI_PROF"), PAGE)
    assert (first.utilisation_ratio, first.utilisation_basis) == (0.8, "gpu_kernel_time")
    assert second.utilisation_ratio is None  # one figure has one meaning in a run
    assert "another figure" in second.missing["utilisation_ratio"]


def test_a_field_that_fails_later_is_not_replaced_by_another() -> None:
    _, second = exporter(PAGE, without("DCGM_FI_PROF"))
    assert (second.utilisation_ratio, second.utilisation_basis) == (None, "gpu_sm_active")


def test_what_an_exporter_lacks_is_told() -> None:
    (look,) = exporter(without("DCGM_FI_DEV"))
    assert set(look.missing) == {"memory_bytes", "energy_j"}
    with pytest.raises(EngineError, match="answered 500"):
        exporter(PAGE, status=500)
    with pytest.raises(EngineError, match="no GPU 9"):
        exporter(PAGE, gpu_ids=("9",))


def test_a_figure_that_one_gpu_does_not_know_has_no_sum() -> None:
    (look,) = exporter(PAGE.replace('FB_USED{gpu="1"', 'FB_FREE{gpu="1"'))
    assert (look.memory_bytes, set(look.missing)) == (None, {"memory_bytes"})


def test_instances_are_not_counted_beside_their_gpu() -> None:
    part = 'gpu="0",UUID="GPU-a",Hostname="h",GPU_I_ID="1"'
    more = f"DCGM_FI_PROF_SM_ACTIVE{{{part}}} 1\nDCGM_FI_DEV_FB_USED{{{part}}} 7\n"
    (look,) = exporter(PAGE + more)
    assert (look.utilisation_ratio, look.memory_bytes) == (0.5, 40 * 2**20)
