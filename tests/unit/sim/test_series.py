"""Series: means and peaks per bin, in a bounded number of bins."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.sim.series import SIGNALS, Series


def _values(value: float) -> tuple[float, ...]:
    return (value,) * len(SIGNALS)


def test_samples_fall_into_the_bin_of_their_time() -> None:
    series = Series(start_s=100.0, width_s=1.0)
    for time_s, value in ((100.0, 1.0), (100.9, 3.0), (102.0, 7.0)):
        series.add(time_s, _values(value))
    means = series.means("running")
    assert means[0] == 2.0
    assert math.isnan(means[1])
    assert means[2] == 7.0
    assert series.peaks("limit") == [3.0, 0.0, 7.0]


def test_past_the_most_bins_each_two_become_one() -> None:
    series = Series(start_s=0.0, width_s=1.0, bins_max=4)
    for i in range(9):
        series.add(float(i), _values(float(i)))
    assert series.width_s == 4.0
    assert series.means("busy_ratio") == [1.5, 5.5, 8.0]
    assert series.peaks("busy_ratio") == [3.0, 7.0, 8.0]


@given(times=st.lists(st.floats(0.0, 1e5), min_size=1, max_size=60))
def test_mean_and_peak_do_not_depend_on_the_bins(times: list[float]) -> None:
    series = Series(start_s=0.0, width_s=1.0, bins_max=8)
    for index, time_s in enumerate(sorted(times)):
        series.add(time_s, _values(float(index)))
    assert len(series) <= 8
    assert sum(series.samples) == len(times)
    assert series.mean("held") == pytest.approx((len(times) - 1) / 2)
    assert series.peak("held") == len(times) - 1


def test_without_samples_nothing_is_known() -> None:
    series = Series(start_s=0.0, width_s=1.0)
    assert series.mean("waiting") is None
    assert series.peak("waiting") is None
