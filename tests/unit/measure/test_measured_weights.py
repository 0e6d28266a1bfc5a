"""What a GPU's time was spent on, out of its counters."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.measured_weights import measured_weights


def gpus(count: int, **figures: Any) -> list[GpuSample]:
    return [GpuSample(gpu=GpuId(number="0"), at_s=float(i), **figures) for i in range(count)]


def test_counters_weigh_by_what_can_be_reached() -> None:
    weights = measured_weights(
        gpus(
            20,
            sm_active_ratio=0.9,
            dram_active_ratio=0.24,
            nvlink_tx_bytes_per_s=3e10,
            nvlink_bytes_per_s_max=1e11,
        )
    )
    assert weights is not None
    parts = weights.compute_ratio, weights.memory_ratio, weights.interconnect_ratio
    assert parts == pytest.approx((0.6, 0.2, 0.2))
    assert sum(parts) == pytest.approx(1.0)
    assert (weights.interconnect_known, weights.samples) == (True, 20)


def test_unknown_links_weigh_nothing_and_are_told() -> None:
    weights = measured_weights(gpus(20, sm_active_ratio=0.8, dram_active_ratio=0.64))
    assert weights is not None
    assert (weights.compute_ratio, weights.interconnect_ratio) == (0.5, 0.0)
    assert not weights.interconnect_known


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="none"),
        pytest.param(gpus(9, sm_active_ratio=0.9, dram_active_ratio=0.3), id="too few"),
        pytest.param(gpus(99, sm_active_ratio=0.01, dram_active_ratio=0.01), id="idle"),
        pytest.param(gpus(99, gpu_util_ratio=1.0, mem_copy_util_ratio=0.3), id="shares of time"),
        pytest.param(gpus(99, sm_active_ratio=0.9), id="memory unknown"),
    ],
)
def test_without_counters_of_work_there_are_no_weights(samples: list[GpuSample]) -> None:
    assert measured_weights(samples) is None
