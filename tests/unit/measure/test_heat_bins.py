"""Heat bins: means of stretches, and what is not known stays so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.heat_bins import HeatPoint, heat_bins, heat_points


def test_means_of_equal_stretches() -> None:
    points = [
        HeatPoint("a", 10.0, 0.5, 0.2),
        HeatPoint("a", 10.5, 0.7, None),
        HeatPoint("b", 12.1, None, 1.0),
    ]
    bins = heat_bins(points, width_s=1.0)
    assert (bins.start_s, bins.width_s, bins.rows) == (10.0, 1.0, ("a", "b"))
    assert bins.bandwidth[0][0] == pytest.approx(0.6)
    assert bins.bandwidth[0][1:] == (None, None)
    assert bins.bandwidth[1] == (None, None, None)
    assert bins.idle == ((0.2, None, None), (None, None, 1.0))


def test_too_many_columns_are_taken_together() -> None:
    points = [HeatPoint("a", float(at), 1.0, 0.0) for at in range(1000)]
    bins = heat_bins(points, width_s=1.0, columns_max=100)
    assert bins.width_s == 10.0
    assert len(bins.idle[0]) <= 100


def test_nothing() -> None:
    assert heat_bins([], width_s=1.0).rows == ()


def test_counted_cycles_come_before_time() -> None:
    sample = GpuSample(
        gpu=GpuId(number="0"),
        at_s=1.0,
        gpu_util_ratio=1.0,
        sm_active_ratio=0.25,
        mem_copy_util_ratio=0.9,
        dram_active_ratio=0.4,
    )
    assert list(heat_points([sample])) == [HeatPoint("0", 1.0, 0.4, 0.75)]
    unknown = GpuSample(gpu=GpuId(number="0"), at_s=1.0)
    assert list(heat_points([unknown])) == [HeatPoint("0", 1.0, None, None)]


ratios = st.none() | st.floats(0, 1)
points = st.lists(
    st.builds(HeatPoint, st.sampled_from("abc"), st.floats(0, 1e6), ratios, ratios), min_size=1
)


@given(points, st.floats(0.1, 1e3), st.integers(1, 50))
def test_cells_are_within_what_was_seen(
    seen: list[HeatPoint], width_s: float, columns_max: int
) -> None:
    bins = heat_bins(seen, width_s=width_s, columns_max=columns_max)
    assert len(bins.idle[0]) <= columns_max + 1
    known = [value for row in bins.idle for value in row if value is not None]
    given_ = [point.idle_ratio for point in seen if point.idle_ratio is not None]
    assert bool(known) == bool(given_)
    if known:
        assert min(given_) - 1e-9 <= min(known) <= max(known) <= max(given_) + 1e-9
    assert math.isclose(bins.width_s % width_s, 0.0, abs_tol=1e-6) or math.isclose(
        bins.width_s % width_s, width_s, rel_tol=1e-6
    )
