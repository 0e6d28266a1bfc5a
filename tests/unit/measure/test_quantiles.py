"""Quantiles by the nearest rank: against the definition, against numpy, runs against plain data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.quantiles import quantile, quantile_of_runs, rank

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
qs = st.sampled_from([0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0])


@pytest.mark.parametrize(
    ("q", "count", "expected"),
    [
        pytest.param(0.0, 7, 1, id="the lowest quantile is the minimum"),
        pytest.param(1.0, 7, 7, id="the highest quantile is the maximum"),
        pytest.param(0.5, 4, 2, id="an even count takes the lower of the two middle values"),
        pytest.param(0.5, 5, 3, id="an odd count takes the middle value"),
        pytest.param(0.99, 99, 99, id="below 100 values the p99 is the maximum"),
        pytest.param(0.99, 100, 99, id="of 100 values the p99 is the last but one"),
        pytest.param(0.99, 101, 100, id="of 101 values the p99 is the last but one"),
        pytest.param(0.07, 100, 7, id="binary rounding of q * count does not raise the rank"),
        pytest.param(0.99, 10**9, 990_000_000, id="a billion values are no less exact"),
    ],
)
def test_rank(q: float, count: int, expected: int) -> None:
    assert rank(q, count) == expected


@pytest.mark.parametrize(
    ("q", "count"),
    [
        pytest.param(-0.1, 3, id="a negative quantile is refused"),
        pytest.param(1.1, 3, id="a quantile above one is refused"),
        pytest.param(float("nan"), 3, id="no number is refused"),
        pytest.param(0.5, 0, id="an empty set has no rank"),
    ],
)
def test_rank_refuses(q: float, count: int) -> None:
    with pytest.raises(ValueError, match=r"q must be in 0\.\.1"):
        rank(q, count)


def test_without_values_there_is_no_quantile() -> None:
    assert quantile([], 0.5) is None
    assert quantile_of_runs([], 0.5) is None
    assert quantile_of_runs([(1.0, 0)], 0.5) is None


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        quantile_of_runs([(1.0, 2), (2.0, -1)], 0.5)


@given(st.lists(numbers, min_size=1, max_size=300), qs)
def test_quantile_equals_numpys_inverted_cdf(values: list[float], q: float) -> None:
    assert quantile(values, q) == np.quantile(values, q, method="inverted_cdf")


@given(st.lists(numbers, min_size=1, max_size=60), st.integers(0, 1000))
def test_quantile_is_the_smallest_value_that_covers_q(values: list[float], mille: int) -> None:
    # Integers only: the definition itself, with no rounding in it.
    covering = [v for v in values if 1000 * sum(x <= v for x in values) >= mille * len(values)]
    assert quantile(values, mille / 1000) == min(covering)


@given(st.lists(st.tuples(numbers, st.integers(0, 40)), min_size=1, max_size=30), qs)
def test_runs_equal_the_data_written_out(runs: list[tuple[float, int]], q: float) -> None:
    written_out = [value for value, count in runs for _ in range(count)]
    assert quantile_of_runs(runs, q) == quantile(written_out, q)
