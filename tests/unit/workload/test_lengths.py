"""Lengths: means in closed form, distributions as stated, nothing outside of the bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from statistics import NormalDist, fmean, pvariance

import pytest

from mileage.core.errors import ConfigError
from mileage.workload.synthetic.lengths import (
    EmpiricalLength,
    FixedLength,
    Length,
    LognormalLength,
    QuantileLength,
    UniformLength,
    ZipfLength,
    drawer,
    mean_tokens,
)
from tests.support.statistics_by_hand import chi_square_z, ks_passes

QUARTILES = QuantileLength(table=((0.0, 10), (0.5, 100), (0.9, 400), (1.0, 5000)))


def drawn(length: Length, count: int = 20_000, seed: int = 1) -> list[int]:
    draw, rng = drawer(length), Random(seed)
    return [draw(rng) for _ in range(count)]


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(FixedLength(tokens=7), id="fixed"),
        pytest.param(UniformLength(low=3, high=9), id="uniform"),
        pytest.param(LognormalLength(median=1000, sigma=0.5), id="lognormal"),
        pytest.param(LognormalLength(median=800, sigma=1.5, low=500, high=2000), id="cut"),
        pytest.param(ZipfLength(alpha=1.1, low=5, high=500), id="zipf"),
        pytest.param(QUARTILES, id="quantiles"),
        pytest.param(EmpiricalLength(tokens=(5, 50, 500), weights=(1, 0, 3)), id="empirical"),
    ],
)
def test_the_mean_is_the_stated_one(length: Length) -> None:
    sample = drawn(length)
    # Rounding moves the mean of a smooth distribution by far less than a hundredth of a token.
    error = math.sqrt(pvariance(sample) / len(sample)) + 0.01
    assert abs(fmean(sample) - mean_tokens(length)) < 4 * error
    assert sample != drawn(length, seed=2) or isinstance(length, FixedLength)


def test_a_lognormal_without_much_of_a_bound_has_the_textbook_mean() -> None:
    length = LognormalLength(median=300, sigma=0.5)
    assert mean_tokens(length) == pytest.approx(300 * math.exp(0.125), rel=1e-6)


def test_a_bounded_lognormal_is_the_unbounded_one_given_the_bounds() -> None:
    length = LognormalLength(median=3000, sigma=1.0, low=1000, high=6000)
    normal = NormalDist(math.log(3000), 1.0)
    low, high = normal.cdf(math.log(999.5)), normal.cdf(math.log(6000.5))
    sample = drawn(length)
    assert 1000 <= min(sample) <= max(sample) <= 6000
    # Spread over the token that each was rounded to, it is continuous again.
    rng = Random(8)
    spread = [tokens - 0.5 + rng.random() for tokens in sample]
    assert ks_passes(spread, lambda x: (normal.cdf(math.log(x)) - low) / (high - low))
    at_bounds = sum(tokens in (1000, 6000) for tokens in sample)
    assert at_bounds < 25, "clipping would pile up half of all draws there"


def test_a_uniform_length_has_both_ends() -> None:
    counts = Counter(drawn(UniformLength(low=3, high=9), 70_000))
    assert sorted(counts) == list(range(3, 10))
    assert abs(chi_square_z([counts[k] for k in range(3, 10)], [10_000] * 7)) < 3.5


def test_a_table_of_quantiles_gives_them_back() -> None:
    sample = drawn(QUARTILES, 40_000)
    for q, most in ((0.25, 55), (0.5, 100), (0.9, 400), (0.95, 2700), (1.0, 5000)):
        below = sum(tokens <= most for tokens in sample) / len(sample)
        assert below == pytest.approx(q, abs=4 * 0.5 / math.sqrt(len(sample)))


def test_weights_of_an_empirical_table() -> None:
    counts = Counter(drawn(EmpiricalLength(tokens=(5, 50, 500), weights=(1, 0, 3)), 40_000))
    assert set(counts) == {5, 500}
    assert abs(chi_square_z([counts[5], counts[500]], [10_000, 30_000])) < 3.5


@pytest.mark.parametrize(
    ("make", "key"),
    [
        pytest.param(lambda: FixedLength(tokens=0), "tokens", id="nothing"),
        pytest.param(lambda: UniformLength(low=9, high=3), "high", id="ends swapped"),
        pytest.param(lambda: LognormalLength(median=-1, sigma=1), "median", id="negative"),
        pytest.param(lambda: LognormalLength(median=10, sigma=math.nan), "sigma", id="nan"),
        pytest.param(
            lambda: LognormalLength(median=10, sigma=0.1, low=10_000), "median", id="out of reach"
        ),
        pytest.param(lambda: QuantileLength(table=((0.0, 1), (0.9, 5))), "table", id="no q 1"),
        pytest.param(
            lambda: QuantileLength(table=((0.0, 9), (0.5, 5), (1.0, 9))), "table", id="falls"
        ),
        pytest.param(lambda: EmpiricalLength(tokens=()), "tokens", id="empty"),
        pytest.param(lambda: EmpiricalLength(tokens=(5,), weights=(0.0,)), "weights", id="none"),
        pytest.param(lambda: EmpiricalLength(tokens=(5,), weights=(1.0, 1.0)), "weights", id="two"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
