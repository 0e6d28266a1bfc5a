"""Points of GPUs: minutes of the ledger and saved looks, both on the UTC clock."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.cli.gpu_points import minute_points, sample_points
from mileage.core.errors import TraceError
from mileage.dashboard.gpu_tracks import GpuPoint
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.telemetry import Telemetry
from mileage.storage.gpu_minutes import GpuMinute

S = 1_000_000_000
ZERO = 1_793_491_200 * S


def minute(field: str, mean: float, gpu: str = "0", at_s: int = 60) -> GpuMinute:
    return GpuMinute(at_s, "n", gpu, field, mean, 9.9, 5)


@pytest.mark.parametrize(
    ("rows", "figures"),
    [
        pytest.param(
            [
                minute("dram_active_ratio", 0.5),
                minute("gpu_util_ratio", 0.9),
                minute("mem_copy_util_ratio", 0.7),
                minute("power_w", 300.0),
                minute("sm_active_ratio", 0.25),
            ],
            (0.5, 0.75, 300.0),
            id="counters of cycles go first",
        ),
        pytest.param(
            [minute("gpu_util_ratio", 0.75), minute("mem_copy_util_ratio", 0.7)],
            (0.7, 0.25, None),
            id="else shares of time",
        ),
        pytest.param([minute("power_w", 9.0)], (None, None, 9.0), id="what is not known is None"),
        pytest.param([minute("sm_active_ratio", 0.0)], (None, 1.0, None), id="0 is known"),
    ],
)
def test_a_minute_is_a_point(rows: list[GpuMinute], figures: tuple[Any, ...]) -> None:
    assert list(minute_points(rows)) == [GpuPoint("n:0", 60 * S, 120 * S, *figures)]


def test_minutes_and_gpus_are_points_of_their_own() -> None:
    rows = [minute("sm_active_ratio", 0.5, gpu, at_s) for at_s in (60, 120) for gpu in ("0", "1")]
    assert [(point.gpu, point.start_ns // S) for point in minute_points(rows)] == [
        ("n:0", 60),
        ("n:1", 60),
        ("n:0", 120),
        ("n:1", 120),
    ]


def look(at_s: float, number: str = "0") -> GpuSample:
    return GpuSample(gpu=GpuId(number=number), at_s=at_s, sm_active_ratio=0.75, power_w=10.0)


def test_a_look_tells_of_the_time_since_the_one_before() -> None:
    looks = (look(1.0), look(1.0, "1"), look(1.5), look(100.0))
    points = list(sample_points(Telemetry(samples=looks, zero_at_utc_ns=ZERO), path="x"))
    assert [(p.gpu, p.start_ns - ZERO, p.end_ns - ZERO) for p in points] == [
        ("0", S, S),
        ("1", S, S),
        ("0", S, S * 3 // 2),
        ("0", 100 * S, 100 * S),  # not of all the time in which nobody looked
    ]
    assert points[0][3:] == (None, 0.25, 10.0)


def test_looks_without_a_time_of_day_are_refused() -> None:
    with pytest.raises(TraceError, match="x:1: has no time of day"):
        list(sample_points(Telemetry(samples=(look(1.0),)), path="x"))


@pytest.mark.parametrize("at_s", [-1e12, 1e300])
def test_an_impossible_time_is_refused(at_s: float) -> None:
    with pytest.raises(TraceError, match="impossible time"):
        list(sample_points(Telemetry(samples=(look(at_s),), zero_at_utc_ns=ZERO), path="x"))
