"""Spread: exact quantiles of plain and of run-length data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.quantiles import quantile
from mileage.measure.spread import Spread, spread, spread_of_runs, weighted_quantile

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_it_agrees_with_the_definition(values: list[float]) -> None:
    found = spread(values)

    assert found.count == len(values)
    assert found.max == max(values)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        assert getattr(found, name) == quantile(values, q)
    assert found.mean is not None
    assert min(values) <= found.mean <= max(values)


@given(st.lists(st.tuples(numbers, st.integers(0, 9)), max_size=30))
def test_runs_are_the_values_written_out(runs: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in runs], dtype=np.float64)
    counts = np.array([count for _, count in runs], dtype=np.int64)
    plain = [value for value, count in runs for _ in range(count)]

    found, whole = spread_of_runs(values, counts), spread(plain)

    assert (found.count, found.p50, found.p99, found.max) == (
        whole.count,
        whole.p50,
        whole.p99,
        whole.max,
    )
    assert weighted_quantile(values, counts, 0.9) == whole.p90


def test_without_data_all_is_none() -> None:
    assert spread([]) == Spread(count=0)
    assert Spread().p50 is None


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="numbers"):
        spread([1.0, float("nan")])
    with pytest.raises(ValueError, match="counts"):
        spread_of_runs(np.array([1.0]), np.array([-1]))
