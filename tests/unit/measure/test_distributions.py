"""Distributions against printed tables and against each other."""

from __future__ import annotations

import math

import pytest

from mileage.measure.distributions import (
    binomial_p,
    chi_square_p,
    normal_cdf,
    normal_quantile,
    t_critical,
    t_p,
    t_quantile,
)


@pytest.mark.parametrize(
    ("alpha", "df", "expected"),
    [
        pytest.param(0.05, 1, 12.7062047, id="one degree of freedom"),
        pytest.param(0.05, 9, 2.2621572, id="nine"),
        pytest.param(0.001, 7, 5.4078825, id="a small level"),
        pytest.param(0.01, 120, 2.6174, id="nearly normal"),
        pytest.param(2e-6, 5, 24.771029, id="a tiny level of few degrees"),
    ],
)
def test_critical_values_of_t_are_those_of_the_tables(
    alpha: float, df: float, expected: float
) -> None:
    assert t_critical(alpha, df) == pytest.approx(expected, rel=2e-5)
    assert t_p(t_critical(alpha, df), df) == pytest.approx(alpha, rel=1e-9)


def test_t_with_one_degree_of_freedom_is_cauchy() -> None:
    for t in (0.1, 1.0, 7.0, 1e4):
        assert t_p(t, 1) == pytest.approx(1.0 - 2.0 * math.atan(t) / math.pi, rel=1e-6)


def test_quantiles_of_t_are_symmetric() -> None:
    assert t_quantile(0.025, 9) == -t_quantile(0.975, 9) == pytest.approx(-2.2621572)
    assert t_quantile(0.5, 3) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "df", "expected"),
    [
        pytest.param(3.841459, 1, 0.05, id="one degree of freedom"),
        pytest.param(18.307038, 10, 0.05, id="ten"),
        pytest.param(2.0, 2, math.exp(-1.0), id="two degrees are exponential"),
        pytest.param(50.0, 2, math.exp(-25.0), id="far in the tail"),
        pytest.param(0.0, 3, 1.0, id="nothing is always exceeded"),
    ],
)
def test_tail_of_chi_square(x: float, df: float, expected: float) -> None:
    assert chi_square_p(x, df) == pytest.approx(expected, rel=1e-6)


def test_the_normal_distribution_is_exact_in_both_tails() -> None:
    assert normal_cdf(-10.0) == pytest.approx(7.619853e-24, rel=1e-6)
    assert normal_cdf(normal_quantile(0.975)) == pytest.approx(0.975, rel=1e-12)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("trials", [0, 1, 7, 40])
def test_the_binomial_test_sums_the_smaller_tail_twice(trials: int, share: float) -> None:
    chances = [
        math.comb(trials, k) * share**k * (1.0 - share) ** (trials - k) for k in range(trials + 1)
    ]
    for k in range(trials + 1):
        expected = min(1.0, 2.0 * min(sum(chances[: k + 1]), sum(chances[k:])))
        assert binomial_p(k, trials, share) == pytest.approx(expected, rel=1e-9)
