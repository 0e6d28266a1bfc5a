"""Fluid: sums over spans as functions of time, against brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.ledger.fluid import Fluid
from mileage.ledger.processor_sharing import covered_s, shared_s

spans = st.lists(st.tuples(st.floats(-5, 25), st.floats(0, 20), st.floats(0.01, 10)), max_size=12)


@given(spans, st.floats(-2, 22), st.floats(0, 10))
def test_integrals_over_whole_slots_are_exact(
    rows: list[tuple[float, float, float]], begin_s: float, length_s: float
) -> None:
    fluid = Fluid(-10.0, 60.0, 0.5)
    table = np.array(rows).reshape(-1, 3)
    starts, ends, heights = table[:, 0], table[:, 0] + table[:, 1], table[:, 2]
    first = round((begin_s + 10.0) / 0.5) * 0.5 - 10.0
    last = first + round(length_s / 0.5) * 0.5
    integral = fluid.integral(fluid.levels(starts, ends, heights))
    found = fluid.between(integral, np.array([first]), np.array([last]))[0]
    wanted = (heights * np.maximum(0, np.minimum(ends, last) - np.maximum(starts, first))).sum()
    assert found == pytest.approx(wanted, abs=1e-9 * (1.0 + heights.sum()) * 70)


@given(spans)
def test_processor_sharing_gives_out_the_time_in_which_somebody_was_there(
    rows: list[tuple[float, float, float]],
) -> None:
    table = np.array(rows).reshape(-1, 3)
    starts, ends, weights = table[:, 0], table[:, 0] + table[:, 1], table[:, 2]
    shared = shared_s(starts, ends, weights, 20.0)
    assert (shared >= -1e-9).all()
    assert shared.sum() == pytest.approx(covered_s(starts, ends, 20.0), abs=1e-6)
    edges = np.unique(np.clip(np.concatenate((starts, ends, [0.0, 20.0])), 0.0, 20.0))
    brute = np.zeros(len(starts))
    for begin, end in pairwise(edges):
        present = (starts <= begin) & (ends >= end)
        if present.any():
            brute[present] += (end - begin) * weights[present] / weights[present].sum()
    assert shared == pytest.approx(brute, abs=1e-6)
