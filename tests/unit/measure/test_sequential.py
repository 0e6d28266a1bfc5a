"""Sequential looks: boundaries against published tables; the error of all looks adds up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.measure.sequential import SequentialPlan, boundaries, spent

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


def test_boundaries_are_those_of_the_published_tables() -> None:
    """Lan and DeMets (1983): five equal looks at two-sided 5 %, as in Reboussin et al. (2000)."""
    fleming = boundaries(FIFTHS, 0.05, "obrien_fleming")
    pocock = boundaries(FIFTHS, 0.05, "pocock")

    assert fleming == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=1e-3)
    assert pocock == pytest.approx((2.438, 2.427, 2.410, 2.397, 2.386), abs=1e-3)


def test_a_single_look_is_a_plain_test() -> None:
    assert boundaries((1.0,), 0.05, "obrien_fleming") == pytest.approx((1.95996,), abs=1e-4)
    assert SequentialPlan(blocks_max=8).alpha_at(8) == pytest.approx(0.05, abs=1e-5)


@given(
    looks=st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True),
    alpha=st.sampled_from([0.01, 0.05, 0.2]),
    fleming=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_paths_of_noise_cross_as_often_as_was_spent(
    looks: list[int], alpha: float, fleming: bool
) -> None:
    """An oracle of its own: random walks, looked at as the boundaries say."""
    fractions = np.array([*sorted(looks), 100]) / 100.0
    spending = "obrien_fleming" if fleming else "pocock"
    bounds = np.array(boundaries(tuple(fractions.tolist()), alpha, spending))
    steps = np.sqrt(np.diff(fractions, prepend=0.0))
    walks = np.cumsum(np.random.default_rng(3).normal(size=(40_000, len(steps))) * steps, axis=1)

    crossed = (np.abs(walks) > bounds * np.sqrt(fractions)).any(axis=1).mean()

    assert crossed == pytest.approx(alpha, abs=4.0 * (alpha * (1 - alpha) / 40_000) ** 0.5)


def test_all_of_the_error_is_spent_at_the_end_and_never_before() -> None:
    for spending in ("obrien_fleming", "pocock"):
        shares = [spent(t / 20, 0.05, spending) for t in range(21)]
        assert shares[0] == 0.0
        assert shares[-1] == 0.05
        assert shares == sorted(shares)
        assert shares[-2] < 0.05


def test_levels_rise_and_are_shared_by_the_metrics_that_decide() -> None:
    plan = SequentialPlan()
    levels = [plan.alpha_at(look) for look in plan.looks()]

    assert plan.looks() == (8, 12, 16, 20, 24)
    assert levels == sorted(levels)
    assert sum(levels) > 0.05 > levels[-1]
    assert plan.alpha_at(24, tests=5) < plan.alpha_at(24) / 4


def test_a_look_that_was_not_planned_spends_what_the_time_allows() -> None:
    plan = SequentialPlan()

    assert plan.alpha_at(10) > plan.alpha_at(8)
    assert plan.alpha_at(10) < plan.alpha_at(24)
    assert [n for n in range(1, 26) if plan.is_look(n)] == [8, 12, 16, 20, 24, 25]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        pytest.param({"blocks_max": 7}, "plan.blocks_max", id="no room for the first look"),
        pytest.param({"blocks_first": 3}, "plan.blocks_first", id="too few for a first look"),
        pytest.param({"blocks_between": 0}, "plan.blocks_between", id="looks without a step"),
        pytest.param({"alpha": 0.0}, "plan.alpha", id="no error at all"),
        pytest.param({"alpha": float("nan")}, "plan.alpha", id="no number"),
        pytest.param({"margin_ratio": 0.0}, "plan.margin_ratio", id="no margin"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(settings: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        SequentialPlan(**settings)  # type: ignore[arg-type]
