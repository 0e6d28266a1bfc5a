"""Quantiles and spreads of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.support.statistics import quantile, spread


@pytest.mark.parametrize(
    ("samples", "q", "value"),
    [
        pytest.param([1.0, 2.0, 3.0], 0.5, 2.0, id="the middle one"),
        pytest.param([1.0, 2.0], 0.5, 1.5, id="between two"),
        pytest.param([1.0, 2.0], 1.0, 2.0, id="the last one"),
        pytest.param([4.0], 0.99, 4.0, id="the only one"),
    ],
)
def test_quantile(samples: list[float], q: float, value: float) -> None:
    assert quantile(samples, q) == value


def test_no_samples_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no samples"):
        quantile([], 0.5)


def test_spread_takes_the_median_of_the_rounds() -> None:
    assert spread([30.0, 10.0, 12.345]).rounded(1) == {"median": 12.3, "min": 10.0, "max": 30.0}
