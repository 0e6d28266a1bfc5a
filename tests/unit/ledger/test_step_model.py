"""StepModel: what the things in a step cost makes up the step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.ledger.step_model import StepModel

MEMORY = (0.02, 1e-5, 2e-7, 0.0)
COMPUTE = (0.002, 1e-4, 1e-7, 2e-4)
plane = st.tuples(
    st.floats(1e-4, 0.1), st.floats(0.0, 1e-3), st.floats(0.0, 1e-6), st.floats(0.0, 1e-3)
)


def parts(model: StepModel, decode: float, kv: float, prefill: float) -> tuple[float, ...]:
    """Seconds of the fixed part, the decodes, their context and the prompts."""
    costs = model.costs(np.array([decode]), np.array([kv]), np.array([prefill]))
    return (
        float(costs.fixed_s[0]),
        float(costs.decode_s[0]) * decode,
        float(costs.kv_s[0]) * kv,
        float(costs.prefill_s[0]) * prefill,
    )


@given(
    st.lists(plane, min_size=1, max_size=2),
    st.floats(0, 256),
    st.floats(0, 1e6),
    st.floats(0, 16384),
)
def test_costs_sum_to_the_step(
    planes: list[tuple[float, float, float, float]], decode: float, kv: float, prefill: float
) -> None:
    model = StepModel(planes)
    step_s = model.step_s(np.array([decode]), np.array([kv]), np.array([prefill]))
    assert sum(parts(model, decode, kv, prefill)) == pytest.approx(float(step_s[0]), rel=1e-9)


def test_a_step_below_the_crossing_costs_what_the_first_plane_says() -> None:
    assert parts(StepModel((MEMORY, COMPUTE)), 10, 1000, 0) == pytest.approx(
        (0.02, 1e-4, 2e-4, 0.0)
    )


def test_beyond_the_crossing_each_thing_costs_the_mean_of_its_slope_on_the_way() -> None:
    # Along the way the planes meet where 0.02 = 0.002 + part * 2e-4 * 1000, at 9 % of it.
    fixed, _, _, prompts = parts(StepModel((COMPUTE, MEMORY)), 0, 0, 1000)
    assert (fixed, prompts) == pytest.approx((0.02, 0.91 * 0.2))


def test_costs_do_not_jump_where_the_planes_meet() -> None:
    model = StepModel((MEMORY, COMPUTE))
    below, above = parts(model, 0, 0, 89.999), parts(model, 0, 0, 90.001)
    assert above == pytest.approx(below, abs=1e-6)
