"""Looks at GPUs as signals: one value for each GPU, instances in place of what they cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mileage.doctor.collect.gpu_facts import GpuLimits, gpu_facts
from mileage.doctor.facts import decode_facts
from mileage.measure.gpu_sample import GpuId, GpuOwner, GpuSample, Sharing
from mileage.scrape.doctor_gpu import dcgm_limits
from mileage.scrape.gpu_dcgm import dcgm_samples


def gpu(number: str = "0", instance: str = "") -> GpuId:
    return GpuId(number=number, instance=instance)


def look(number: str = "0", at_s: float = 0.0, **figures: Any) -> GpuSample:
    return GpuSample(gpu=gpu(number), at_s=at_s, **figures)


def signals(samples: list[GpuSample], limits: list[GpuLimits] | None = None) -> dict[str, Any]:
    document = gpu_facts(samples, limits or [])
    decode_facts(document)
    return dict(document.get("signals", {}))


def test_each_gpu_has_the_mean_of_its_looks_that_know_the_figure() -> None:
    found = signals(
        [
            look("1", gpu_util_ratio=0.5, power_w=300.0),
            look("0", gpu_util_ratio=0.2, sm_clock_hz=1.98e9),
            look("0", 1.0, gpu_util_ratio=0.4),
            look("1", 1.0, power_w=400.0),
        ]
    )
    assert found["gpu_util_ratio"] == [pytest.approx(0.3), 0.5]
    assert found["power_w"] == 350
    assert found["sm_clock_mhz"] == 1980
    assert "dram_active_ratio" not in found


def test_throttling_is_the_share_of_looks_that_show_its_reason() -> None:
    reasons = [{"sw_thermal"}, {"hw_thermal", "sw_power_cap"}, {"gpu_idle"}, set()]
    looks = [look(at_s=n, throttle_reasons=frozenset(r)) for n, r in enumerate(reasons)]
    found = signals([*looks, look(at_s=9.0)])
    assert (found["throttle_thermal_ratio"], found["throttle_power_ratio"]) == (0.5, 0.25)
    assert "throttle_thermal_ratio" not in signals([look(gpu_util_ratio=1.0)])


def test_instances_stand_for_their_gpu_in_the_figures_that_they_have() -> None:
    mig = Sharing("mig", profile="1g.10gb")
    document = gpu_facts(
        [
            look(power_w=200.0, gpu_util_ratio=0.0),
            GpuSample(gpu=gpu(instance="1"), at_s=0.0, gr_active_ratio=0.9, sharing=mig),
            GpuSample(gpu=gpu(instance="2"), at_s=0.0, gr_active_ratio=0.1, sharing=mig),
        ]
    )
    assert document["signals"]["gr_engine_active_ratio"] == [0.9, 0.1]
    assert document["signals"]["power_w"] == 200
    assert document["hardware"]["mig_profile"] == "1g.10gb"


def test_memory_and_links_are_of_what_the_card_has() -> None:
    document = gpu_facts(
        [
            look(
                model="NVIDIA L4",
                memory_used_bytes=20 * 10**9,
                memory_total_bytes=24 * 10**9,
                nvlink_tx_bytes_per_s=1e9,
                nvlink_rx_bytes_per_s=3e9,
                nvlink_bytes_per_s_max=6e9,
            )
        ]
    )
    assert document["hardware"] == {"gpu": "NVIDIA L4", "memory_gb": 24.0}
    assert document["signals"]["gpu_mem_free_gb"] == 4
    assert document["signals"]["nvlink_util_ratio"] == 0.5


def test_pods_on_one_gpu_all_read_what_the_device_does() -> None:
    pods = (GpuOwner(pod="a"), GpuOwner(pod="b"), GpuOwner(pod="c"))
    document = gpu_facts([look(gpu_util_ratio=0.7, owners=pods)])
    assert document["signals"]["gpu_util_equal_across_pods"] is True
    assert document["settings"]["k8s.pods_on_gpu"] == 3


def test_an_error_is_one_at_least_and_none_is_none() -> None:
    bad = [GpuLimits(gpu=gpu("0"), last_xid=79.0), GpuLimits(gpu=gpu("1"), last_xid=0.0)]
    looks = [look("0"), look("1")]
    assert signals(looks, bad)["xid_errors_count"] == {"min": 1}
    assert signals(looks, bad[1:])["xid_errors_count"] == 0
    assert "xid_errors_count" not in signals(looks)


def test_limits_are_those_of_the_gpus_that_were_looked_at() -> None:
    limits = [
        GpuLimits(gpu=gpu("0"), sm_clock_max_hz=1.98e9, slowdown_temp_c=90.0),
        GpuLimits(gpu=gpu("5"), sm_clock_max_hz=1e9),
    ]
    found = signals([look("0")], limits)
    assert (found["sm_clock_max_mhz"], found["gpu_slowdown_temp_c"]) == (1980, 90)


def test_a_processor_in_place_of_a_gpu_is_none() -> None:
    assert gpu_facts([GpuSample(gpu=gpu(), at_s=0.0, basis="cpu", sm_active_ratio=0.9)]) == {}


@pytest.mark.skipif("MILEAGE_DATA_DIR" not in os.environ, reason="real dumps are not here")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "dcgm_t4_datadog_fixture.txt",
            {"xid_errors_count": 0, "gpu_slowdown_temp_c": 93},
            id="T4",
        ),
        pytest.param(
            "dcgm_mig_a30_issue317.txt", {"tensor_active_ratio": [0] * 8}, id="in instances"
        ),
        pytest.param("dcgm_exporter_readme.txt", {"sm_clock_mhz": 139}, id="with blank values"),
    ],
)
def test_real_pages(name: str, expected: dict[str, Any]) -> None:
    body = (Path(os.environ["MILEAGE_DATA_DIR"]) / "metrics" / name).read_bytes()
    found = signals(list(dcgm_samples(body, at_s=0.0)), dcgm_limits(body))
    assert {key: found.get(key) for key in expected} == expected
