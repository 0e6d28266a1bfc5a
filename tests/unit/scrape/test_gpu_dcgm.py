"""GPUs on a DCGM exporter's page: figures, blanks, instances, sharers, spellings."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuOwner, GpuSample, Sharing
from mileage.scrape.gpu_dcgm import dcgm_samples
from mileage.scrape.gpu_dcgm_source import DcgmTelemetry
from mileage.wire.fetch import FetchResponse

H100 = 'gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'


def page(*lines: str) -> bytes:
    return "\n".join(lines).encode()


def one(*lines: str) -> GpuSample:
    (sample,) = dcgm_samples(page(*lines), at_s=5.0)
    return sample


def test_all_figures_of_a_gpu() -> None:
    sample = one(
        f"DCGM_FI_DEV_GPU_UTIL{{{H100}}} 97",
        f"DCGM_FI_DEV_MEM_COPY_UTIL{{{H100}}} 41",
        f"DCGM_FI_PROF_SM_ACTIVE{{{H100}}} 0.9126",
        f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{H100}}} 0.2794",
        f"DCGM_FI_PROF_DRAM_ACTIVE{{{H100}}} 0.2137",
        f"DCGM_FI_PROF_NVLINK_TX_BYTES{{{H100}}} 225000000000",
        f"DCGM_FI_PROF_PCIE_RX_BYTES{{{H100}}} 873509672",
        f"DCGM_FI_DEV_FB_USED{{{H100}}} 1024",
        f"DCGM_FI_DEV_FB_FREE{{{H100}}} 3072",
        f"DCGM_FI_DEV_POWER_USAGE{{{H100}}} 572.191",
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{H100}}} 128996013",
        f"DCGM_FI_DEV_SM_CLOCK{{{H100}}} 1980",
        f"DCGM_FI_DEV_GPU_TEMP{{{H100}}} 61",
        f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{H100}}} 4",
    )
    assert (sample.gpu.label, sample.at_s) == ("n1:0", 5.0)
    assert (sample.gpu_util_ratio, sample.mem_copy_util_ratio) == (0.97, 0.41)
    assert (sample.sm_active_ratio, sample.dram_active_ratio) == (0.9126, 0.2137)
    assert sample.link == ("nvlink_ratio", 0.5)
    assert sample.pcie_rx_bytes_per_s == 873509672
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (2**30, 4 * 2**30)
    assert (sample.power_w, sample.energy_j) == (572.191, 128996.013)
    assert (sample.sm_clock_hz, sample.temperature_c) == (1.98e9, 61.0)
    assert sample.throttle_reasons == frozenset({"sw_power_cap"})
    assert sample.doubts == ()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("9223372036854775794", id="64 bits, not supported"),
        pytest.param("9223372036854775792", id="64 bits"),
        pytest.param("140737488355328", id="floating point"),
        pytest.param("2147483632", id="32 bits"),
        pytest.param("2147483634", id="32 bits, not supported"),
        pytest.param("NaN", id="no number"),
        pytest.param("-1", id="negative"),
        pytest.param("+Inf", id="infinite"),
    ],
)
@pytest.mark.parametrize(
    ("field", "attribute"),
    [
        pytest.param("DCGM_FI_DEV_GPU_TEMP", "temperature_c", id="temperature"),
        pytest.param("DCGM_FI_DEV_POWER_USAGE", "power_w", id="power"),
        pytest.param("DCGM_FI_PROF_SM_ACTIVE", "sm_active_ratio", id="SM_ACTIVE"),
        pytest.param("DCGM_FI_PROF_NVLINK_TX_BYTES", "nvlink_tx_bytes_per_s", id="NVLink"),
        pytest.param("DCGM_FI_DEV_FB_USED", "memory_used_bytes", id="memory"),
        pytest.param("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_j", id="energy"),
    ],
)
def test_blank_values_are_unknown(field: str, attribute: str, value: str) -> None:
    sample = one(f'{field}{{gpu="0"}} {value}')
    assert getattr(sample, attribute) is None


def test_stopped_profiling_is_unknown_and_told() -> None:
    sample = one(
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 100',
        'DCGM_FI_PROF_SM_ACTIVE{gpu="0"} 0',
        'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0"} 0',
    )
    assert (sample.sm_active_ratio, sample.dram_active_ratio) == (None, None)
    assert len(sample.doubts) == 2


def test_lower_case_names_and_old_labels() -> None:
    sample = one(
        'dcgm_fi_prof_sm_active{gpu="4",uuid="GPU-4",container_name="c",pod_name="p",'
        'pod_namespace="n"} 0.5'
    )
    assert sample.sm_active_ratio == 0.5
    assert (sample.gpu.uuid, sample.owners) == ("GPU-4", (GpuOwner("n", "p", "c"),))


def test_instances_have_their_profile_and_not_their_gpu_s_power() -> None:
    mig = 'gpu="0",UUID="GPU-a",modelName="NVIDIA A30",GPU_I_PROFILE="1g.6gb",GPU_I_ID='
    samples = dcgm_samples(
        page(
            f'DCGM_FI_PROF_SM_ACTIVE{{{mig}"3"}} 0.25',
            f'DCGM_FI_DEV_POWER_USAGE{{{mig}"3"}} 100',
            f'DCGM_FI_PROF_SM_ACTIVE{{{mig}"10"}} 0.5',
        ),
        at_s=0.0,
    )
    assert [(s.gpu.label, s.sm_active_ratio, s.power_w) for s in samples] == [
        ("0/3", 0.25, None),
        ("0/10", 0.5, None),
    ]
    assert samples[0].sharing == Sharing("mig", profile="1g.6gb")


def test_pods_on_one_gpu_are_its_sharers() -> None:
    shared = [f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",pod="p{i}",namespace="n"}} 50' for i in range(3)]
    sample = one(*shared)
    assert sample.sharing == Sharing("time_slicing", 3)
    assert [owner.pod for owner in sample.owners] == ["p0", "p1", "p2"]
    assert sample.gpu_util_ratio == 0.5


def test_gpus_are_told_apart_by_machine_and_in_order() -> None:
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",UUID="GPU-{host}{gpu}",Hostname="{host}"}} 1'
        for host in ("b", "a")
        for gpu in (10, 9)
    ]
    labels = [s.gpu.label for s in dcgm_samples(page(*lines), at_s=0.0)]
    assert labels == ["a:9", "a:10", "b:9", "b:10"]
    (named,) = dcgm_samples(page(*lines), at_s=0.0, gpu_ids=("GPU-b9",))
    assert named.gpu.label == "b:9"
    with pytest.raises(ValueError, match="of several machines"):
        dcgm_samples(page(*lines), at_s=0.0, gpu_ids=("9",))
    with pytest.raises(ValueError, match="has no GPU 7"):
        dcgm_samples(page(*lines), at_s=0.0, gpu_ids=("7",))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>not found</html>", id="a web page"),
        pytest.param(b'up{job="x"} 1\n', id="another exporter"),
    ],
)
def test_another_page_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="DCGM exporter"):
        dcgm_samples(body, at_s=0.0)


def test_a_page_of_too_many_gpus_is_an_error() -> None:
    lines = [f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}"}} 1' for gpu in range(3000)]
    with pytest.raises(ValueError, match="more than 2048 GPUs"):
        dcgm_samples(page(*lines), at_s=0.0)


def _source(answer: FetchResponse) -> DcgmTelemetry:
    async def fetch(url: str, **options: Any) -> FetchResponse:
        await asyncio.sleep(0)
        return answer

    return DcgmTelemetry("http://127.0.0.1:9400/metrics", (), fetch=fetch)


def test_a_source_reads_the_page_and_maps_its_errors() -> None:
    good = _source(FetchResponse(200, (), b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50'))
    assert [s.at_s for s in good.read(1.0)] == [1.0]
    good.close()
    for answer in (FetchResponse(503, (), b""), FetchResponse(200, (), b"hello")):
        bad = _source(answer)
        with pytest.raises(EngineError, match="9400"):
            bad.read(0.0)
        bad.close()


def test_a_page_that_has_not_changed_is_no_look_of_the_exporter() -> None:
    bodies = [b"50", b"50", b"51", b"51", *[b"51"] * 30]

    async def fetch(url: str, **options: Any) -> FetchResponse:
        await asyncio.sleep(0)
        return FetchResponse(200, (), b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} ' + bodies.pop(0))

    source = DcgmTelemetry("http://127.0.0.1:9400/metrics", (), fetch=fetch)
    times = [sample.at_s for second in range(34) for sample in source.read(float(second))]
    source.close()
    assert times == [0.0, 2.0, 32.0]


@pytest.mark.skipif("MILEAGE_DATA_DIR" not in os.environ, reason="real dumps are not here")
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        pytest.param("dcgm_t4_datadog_fixture.txt", 2, id="T4"),
        pytest.param("dcgm_mig_a30_issue317.txt", 8, id="A30 in instances"),
        pytest.param("dcgm_mig_a100_pod_labels_issue272.txt", 2, id="A100, lower case"),
        pytest.param("dcgm_exporter_readme.txt", 1, id="with blank values"),
    ],
)
def test_real_pages(name: str, gpus: int) -> None:
    body = (Path(os.environ["MILEAGE_DATA_DIR"]) / "metrics" / name).read_bytes()
    samples = dcgm_samples(body, at_s=0.0)
    assert len(samples) == gpus
    assert all(sample.doubts == () for sample in samples)
    assert all(sample.temperature_c in (None, 25.0) for sample in samples)
