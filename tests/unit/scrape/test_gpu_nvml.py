"""This machine's GPUs by NVML: on nvidia-ml-py's own code, with a library that a test plays."""

from __future__ import annotations

from collections.abc import Iterator

import pynvml
import pytest

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuOwner, Sharing
from mileage.scrape.gpu_nvml import NvmlTelemetry
from tests.support.nvml_telemetry import TelemetryLibrary

ULL, UINT = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT


@pytest.fixture
def library() -> Iterator[TelemetryLibrary]:
    library = TelemetryLibrary(2)
    library.kernel_percent = {0: 97, 1: 3}
    library.memory_percent = {0: 41, 1: 1}
    library.gpm = {
        pynvml.NVML_GPM_METRIC_SM_UTIL: 91.0,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 21.0,
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 28.0,
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 1024.0,
    }
    library.fields = {
        pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: (UINT, 18),
        pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: (UINT, 26_562),
        pynvml.NVML_FI_DEV_POWER_CURRENT_LIMIT: (UINT, 700_000),
        pynvml.NVML_FI_DEV_POWER_INSTANT: (UINT, 572_191),
        pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: (ULL, 128_996_013),
    }
    with library.loaded():
        yield library
    assert library.sessions == 0
    assert library.samples == {}


def test_all_figures_of_a_gpu(library: TelemetryLibrary) -> None:
    library.reasons[0] = 0x4 | 0x40
    library.running[0] = [41, 7]
    source = NvmlTelemetry(("0",))
    (first,) = source.read(1.0)
    assert first.sm_active_ratio is None
    (sample,) = source.read(1.5)
    source.close()
    assert sample.gpu.uuid == "GPU-0"
    assert sample.model == "NVIDIA H100 80GB HBM3"
    assert (sample.gpu_util_ratio, sample.mem_copy_util_ratio) == (0.97, 0.41)
    assert (sample.sm_active_ratio, sample.dram_active_ratio) == (0.91, 0.21)
    assert sample.tensor_active_ratio == pytest.approx(0.28)
    assert sample.sm_occupancy_ratio is None
    assert sample.nvlink_tx_bytes_per_s == 2**30
    assert sample.nvlink_bytes_per_s_max == pytest.approx(478e9, rel=0.01)
    assert sample.pcie_bytes_per_s_max == 63e9
    assert (sample.power_w, sample.power_limit_w) == (572.191, 700.0)
    assert sample.energy_j == 128_996.013
    assert (sample.sm_clock_hz, sample.temperature_c) == (1.98e9, 61.0)
    assert sample.memory_total_bytes == 80 * 2**30
    assert sample.throttle_reasons == frozenset({"sw_power_cap", "hw_thermal"})
    assert sample.pids == (7, 41)
    assert sample.sharing is None


def test_without_gpm_links_are_told_by_their_counters_once_a_second(
    library: TelemetryLibrary,
) -> None:
    library.supported = False
    tx = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    data, raw = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 140
    source = NvmlTelemetry(("0",))
    rates = []
    for look in range(31):
        library.fields[tx] = (ULL, 1_000 * look if look < 20 else 0)
        library.fields |= {data: (ULL, 10 * look), raw: (ULL, 20 * look)}
        (sample,) = source.read(look / 10)
        rates.append((sample.pcie_tx_bytes_per_s, sample.nvlink_tx_bytes_per_s))
    source.close()
    assert rates[9] == (None, None)
    assert rates[10:20] == [(10_000.0, 200 * 1024.0)] * 10
    assert rates[20] == (None, 200 * 1024.0)  # that counter went back


def test_calls_into_the_driver_are_few(library: TelemetryLibrary) -> None:
    """Of two GPUs: what changes fast in each look, all else in each tenth."""
    source = NvmlTelemetry()
    source.read(0.0)
    library.calls.clear()
    for look in range(1, 11):
        source.read(look / 10)
    source.close()
    per_look = {name: calls / 20 for name, calls in library.calls.items()}
    assert per_look["nvmlDeviceGetFieldValues"] == 1.0
    assert per_look["nvmlDeviceGetMemoryInfo"] == 0.1
    assert sum(per_look.values()) < 6


def test_what_a_gpu_lacks_is_asked_for_once(library: TelemetryLibrary) -> None:
    library.supported = False
    library.kernel_percent.clear()
    library.fails["nvmlDeviceGetMPSComputeRunningProcesses_v3"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    source = NvmlTelemetry(("0",))
    for look in range(25):
        (sample,) = source.read(float(look))
    source.close()
    assert (sample.gpu_util_ratio, sample.sm_active_ratio) == (None, None)
    assert sample.power_w is not None
    assert library.calls["nvmlDeviceGetUtilizationRates"] == 1
    assert library.calls["nvmlDeviceGetMPSComputeRunningProcesses_v3"] == 1


def test_a_gpu_that_is_lost_is_an_error_and_opened_anew(library: TelemetryLibrary) -> None:
    source = NvmlTelemetry()
    source.read(0.0)
    library.fails["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(EngineError):
        source.read(0.1)
    assert library.sessions == 0
    del library.fails["nvmlDeviceGetUtilizationRates"]
    assert len(source.read(0.2)) == 2
    source.close()


def test_instances_of_a_partitioned_gpu_stand_for_it(library: TelemetryLibrary) -> None:
    library.instances[0] = {1: "3g.40gb", 2: "3g.40gb"}
    source = NvmlTelemetry()
    source.read(0.0)
    samples = source.read(0.1)
    source.close()
    assert [s.gpu.label for s in samples] == ["0/1", "0/2", "1"]
    assert samples[0].sharing == Sharing("mig", profile="3g.40gb")
    assert (samples[0].gpu_util_ratio, samples[0].power_w) == (None, None)
    assert samples[0].sm_active_ratio == 0.91
    assert samples[0].model == "NVIDIA H100 80GB HBM3"


def test_one_instance_may_be_named(library: TelemetryLibrary) -> None:
    library.instances[0] = {1: "3g.40gb", 2: "3g.40gb"}
    source = NvmlTelemetry(("GPU-0/2",))
    assert [s.gpu.label for s in source.read(0.0)] == ["0/2"]
    source.close()
    absent = NvmlTelemetry(("0/9",))
    with pytest.raises(EngineError, match="no MIG instance 9"):
        absent.read(0.0)


@pytest.mark.parametrize(
    ("mps", "owners", "sharing"),
    [
        pytest.param([7, 8, 9], {}, Sharing("mps", 3), id="clients of MPS"),
        pytest.param(
            [],
            {7: GpuOwner(pod="a"), 8: GpuOwner(pod="b")},
            Sharing("time_slicing", 2),
            id="pods take turns",
        ),
        pytest.param([], {7: GpuOwner(pod="a"), 8: GpuOwner(pod="a")}, None, id="one pod alone"),
    ],
)
def test_how_a_gpu_is_shared(
    library: TelemetryLibrary,
    mps: list[int],
    owners: dict[int, GpuOwner],
    sharing: Sharing | None,
) -> None:
    library.running[0], library.mps[0] = [7, 8], mps
    source = NvmlTelemetry(("0",), owner_of=owners.get)
    (sample,) = source.read(0.0)
    source.close()
    assert sample.sharing == sharing
    assert sample.owners == tuple(sorted(set(owners.values())))


def test_counters_that_stand_still_at_full_load_are_not_believed(
    library: TelemetryLibrary,
) -> None:
    library.kernel_percent[0] = 100
    library.gpm = {pynvml.NVML_GPM_METRIC_SM_UTIL: 0.0, pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 0.0}
    source = NvmlTelemetry(("0",))
    source.read(0.0)
    (sample,) = source.read(0.1)
    source.close()
    assert (sample.sm_active_ratio, sample.dram_active_ratio) == (None, None)
    assert any("profiling has stopped" in doubt for doubt in sample.doubts)


def test_without_the_library_it_is_told_how_to_get_it() -> None:
    def load() -> None:
        raise EngineError("nvml", "nvidia-ml-py is not installed")

    with pytest.raises(EngineError, match="not installed"):
        NvmlTelemetry(load=load).read(0.0)
