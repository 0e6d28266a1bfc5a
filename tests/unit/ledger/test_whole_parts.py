"""whole_parts(): as the controller's split, for many amounts at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.control.gpu_meter import split
from mileage.ledger.whole_parts import whole_parts


@pytest.mark.parametrize(
    ("amount", "weights", "parts"),
    [
        pytest.param(10, [1, 1, 1], [4, 3, 3], id="what is left goes to the first"),
        pytest.param(10, [0, 5], [0, 10], id="no weight, no part"),
        pytest.param(5, [0, 0], [3, 2], id="no weights at all: equal parts"),
        pytest.param(0, [1, 2], [0, 0], id="nothing to share"),
        pytest.param(7, [3, 1], [5, 2], id="the largest remainder"),
    ],
)
def test_one_amount(amount: int, weights: list[float], parts: list[int]) -> None:
    groups = np.zeros(len(weights), dtype=np.int64)
    assert whole_parts(np.array([amount]), groups, np.array(weights, float)).tolist() == parts


@given(
    st.lists(
        st.tuples(st.integers(0, 10**14), st.lists(st.integers(0, 1000), max_size=8)), max_size=8
    )
)
def test_each_group_sums_to_its_amount_and_is_as_split_has_it(
    cases: list[tuple[int, list[int]]],
) -> None:
    amounts = np.array([amount for amount, _ in cases], dtype=np.int64)
    groups = np.array([n for n, (_, w) in enumerate(cases) for _ in w], dtype=np.int64)
    weights = np.array([each for _, w in cases for each in w], dtype=float)
    found = whole_parts(amounts, groups, weights)
    for number, (amount, own) in enumerate(cases):
        parts = found[groups == number].tolist()
        if own:
            assert sum(parts) == amount
        if sum(own):
            wanted = split(amount, own)
            assert parts == pytest.approx(wanted, rel=1e-12, abs=1)
