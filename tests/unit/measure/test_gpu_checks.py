"""Figures of a GPU that cannot be true are refused, with the reason; all others are kept."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.measure.gpu_checks import checked
from mileage.measure.gpu_sample import GpuId, GpuSample


def gpu(**figures: Any) -> GpuSample:
    return GpuSample(gpu=GpuId(number="0"), at_s=0.0, **figures)


@pytest.mark.parametrize(
    ("figures", "refused"),
    [
        pytest.param({"gpu_util_ratio": 1.5}, ["gpu_util_ratio"], id="a share above 1"),
        pytest.param({"dram_active_ratio": float("nan")}, ["dram_active_ratio"], id="not a number"),
        pytest.param(
            {"nvlink_tx_bytes_per_s": 6e11, "nvlink_bytes_per_s_max": 4.5e11},
            ["nvlink_tx_bytes_per_s"],
            id="a link beyond its maximum",
        ),
        pytest.param({"pcie_rx_bytes_per_s": -1.0}, ["pcie_rx_bytes_per_s"], id="a negative rate"),
        pytest.param(
            {"memory_used_bytes": 9, "memory_total_bytes": 8},
            ["memory_used_bytes"],
            id="more memory used than there is",
        ),
        pytest.param(
            {"power_w": 2200.0, "power_limit_w": 700.0}, ["power_w"], id="three times the limit"
        ),
        pytest.param(
            {"temperature_c": 4294967254.0}, ["temperature_c"], id="a wrapped temperature"
        ),
        pytest.param({"sm_clock_hz": 1e12}, ["sm_clock_hz"], id="a clock of terahertz"),
        pytest.param(
            {"gpu_util_ratio": 1.0, "sm_active_ratio": 0.0, "dram_active_ratio": 0.0},
            ["dram_active_ratio", "sm_active_ratio"],
            id="profiling at 0 while kernels run all the time",
        ),
        pytest.param(
            {"gpu_util_ratio": 1.0, "gr_active_ratio": 0.0, "tensor_active_ratio": 0.0},
            ["gr_active_ratio", "tensor_active_ratio"],
            id="profiling at 0, told by the engine's activity",
        ),
    ],
)
def test_what_cannot_be_true_is_refused(figures: dict[str, Any], refused: list[str]) -> None:
    before = gpu(**figures)
    after = checked(before)
    changed = [n for n in figures if getattr(after, n) is None]
    assert sorted(changed) == refused
    assert sorted(doubt.partition(":")[0] for doubt in after.doubts) == refused
    assert checked(after) == after


@pytest.mark.parametrize(
    "figures",
    [
        pytest.param({}, id="nothing known"),
        pytest.param({"gpu_util_ratio": 0.0, "sm_active_ratio": 0.0}, id="an idle GPU"),
        pytest.param(
            {"gpu_util_ratio": 1.0, "sm_active_ratio": 0.01, "tensor_active_ratio": 0.0},
            id="one multiprocessor that never multiplies matrices",
        ),
        pytest.param(
            {"nvlink_tx_bytes_per_s": 4.6e11, "nvlink_bytes_per_s_max": 4.5e11},
            id="a rate just above the nominal maximum",
        ),
        pytest.param({"power_w": 900.0, "power_limit_w": 700.0}, id="a spike of power"),
    ],
)
def test_what_is_possible_is_kept(figures: dict[str, Any]) -> None:
    assert checked(gpu(**figures)) == gpu(**figures)


def test_rounding_above_1_is_cut_and_no_doubt() -> None:
    assert checked(gpu(sm_active_ratio=1.005)) == gpu(sm_active_ratio=1.0)


def test_links_are_told_by_their_busier_direction() -> None:
    sample = gpu(
        nvlink_tx_bytes_per_s=1e11, nvlink_rx_bytes_per_s=2e11, nvlink_bytes_per_s_max=4e11
    )
    assert sample.link == ("nvlink_ratio", 0.5)
    alone = gpu(nvlink_bytes_per_s_max=0.0, pcie_tx_bytes_per_s=5e9, pcie_bytes_per_s_max=1e10)
    assert alone.link == ("pcie_ratio", 0.5)
    assert gpu(nvlink_tx_bytes_per_s=1.0).link == ("nvlink_ratio", None)
    assert gpu(basis="cpu").link == ("nvlink_ratio", 0.0)
