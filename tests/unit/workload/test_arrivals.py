"""Arrivals: mean rates without bias, gaps as their distribution says, burstiness in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice, pairwise, takewhile
from random import Random
from statistics import fmean, pvariance

import pytest

from mileage.core.errors import ConfigError
from mileage.workload.synthetic.arrivals import (
    Arrivals,
    DiurnalArrivals,
    EvenArrivals,
    GammaArrivals,
    OnOffArrivals,
    PoissonArrivals,
    WeibullArrivals,
    arrival_times,
    weibull_shape,
)
from tests.support.statistics_by_hand import chi_square_z, gamma_cdf, ks_passes

PROCESSES = [
    pytest.param(PoissonArrivals(), id="poisson"),
    pytest.param(GammaArrivals(cv=3.0), id="gamma, bursty"),
    pytest.param(GammaArrivals(cv=0.3), id="gamma, regular"),
    pytest.param(WeibullArrivals(cv=4.0), id="weibull, bursty"),
    pytest.param(WeibullArrivals(cv=0.5), id="weibull, regular"),
    pytest.param(OnOffArrivals(on_s=2.0, off_s=6.0), id="on and off"),
    pytest.param(OnOffArrivals(on_s=1.0, off_s=1.0, off_ratio=0.25), id="high and low"),
]


def times_until(arrivals: Arrivals, rate_rps: float, end_s: float, seed: int) -> list[float]:
    source = arrival_times(arrivals, rate_rps, Random(seed))
    return list(takewhile(lambda t: t < end_s, source))


@pytest.mark.parametrize("arrivals", PROCESSES)
@pytest.mark.parametrize("end_s", [0.05, 0.5, 4.0])
def test_the_expected_number_is_rate_times_time_from_the_very_start(
    arrivals: Arrivals, end_s: float
) -> None:
    # A renewal process that begins with a whole gap has (cv**2 - 1) / 2 too many: 4 of 8 at cv 3.
    counts = [len(times_until(arrivals, 2.0, end_s, seed)) for seed in range(4000)]
    error = math.sqrt(pvariance(counts) / len(counts))
    assert abs(fmean(counts) - 2.0 * end_s) < 4.0 * error


@pytest.mark.parametrize("rate_rps", [0.01, 3.0, 500.0])
@pytest.mark.parametrize("arrivals", [PoissonArrivals(), GammaArrivals(cv=2.0)])
def test_the_mean_rate_of_a_long_run(arrivals: Arrivals, rate_rps: float) -> None:
    count = 100_000
    last_s = next(islice(arrival_times(arrivals, rate_rps, Random(5)), count - 1, None))
    cv = getattr(arrivals, "cv", 1.0)
    assert abs(count / last_s / rate_rps - 1.0) < 4.0 * cv / math.sqrt(count)


def exponential(x: float) -> float:
    return -math.expm1(-x)


def gamma_with(cv: float) -> Callable[[float], float]:
    shape = cv**-2
    return lambda x: gamma_cdf(shape, x * shape)


def weibull_with(cv: float) -> Callable[[float], float]:
    shape = weibull_shape(cv)
    mean = math.gamma(1 + 1 / shape)
    return lambda x: -math.expm1(-((x * mean) ** shape))


@pytest.mark.parametrize(
    ("arrivals", "cdf"),
    [
        pytest.param(PoissonArrivals(), exponential, id="poisson"),
        pytest.param(GammaArrivals(cv=1.0), exponential, id="gamma with cv 1 is poisson"),
        pytest.param(GammaArrivals(cv=2.5), gamma_with(2.5), id="gamma, bursty"),
        pytest.param(GammaArrivals(cv=0.4), gamma_with(0.4), id="gamma, regular"),
        pytest.param(WeibullArrivals(cv=1.0), exponential, id="weibull with cv 1 is poisson"),
        pytest.param(WeibullArrivals(cv=3.0), weibull_with(3.0), id="weibull, bursty"),
    ],
)
def test_gaps_have_their_distribution(arrivals: Arrivals, cdf: Callable[[float], float]) -> None:
    times = list(islice(arrival_times(arrivals, 7.0, Random(3)), 20_001))
    gaps = [(b - a) * 7.0 for a, b in pairwise(times)]
    assert ks_passes(gaps, cdf)
    clipped = [min(gap, 1.5) for gap in gaps]  # the mistake that this is to find
    mean = fmean(clipped)
    assert not ks_passes([gap / mean for gap in clipped], cdf)


@pytest.mark.parametrize("cv", [0.05, 0.5, 1.0, 2.0, 8.0])
def test_the_shape_of_a_weibull_has_the_cv(cv: float) -> None:
    shape = weibull_shape(cv)
    ratio = math.exp(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape))
    assert math.sqrt(ratio - 1) == pytest.approx(cv, rel=1e-6)


def test_the_dispersion_of_on_and_off_is_the_closed_form() -> None:
    # Fischer and Meier-Hellstern, "The MMPP cookbook", Performance Evaluation 18 (1993).
    on_s, off_s, ratio, rate, window_s = 1.0, 3.0, 0.2, 20.0, 2.0
    high = rate * (on_s + off_s) / (on_s + ratio * off_s)
    low, leave_on, leave_off = high * ratio, 1 / on_s, 1 / off_s
    total = leave_on + leave_off
    limit = (
        2
        * leave_on
        * leave_off
        * (high - low) ** 2
        / (total**2 * (high * leave_off + low * leave_on))
    )
    expected = 1 + limit * (1 + math.expm1(-total * window_s) / (total * window_s))
    windows = 20_000
    arrivals = OnOffArrivals(on_s=on_s, off_s=off_s, off_ratio=ratio)
    counts = [0] * windows
    for at_s in times_until(arrivals, rate, windows * window_s, 1):
        counts[int(at_s / window_s)] += 1
    assert fmean(counts) == pytest.approx(rate * window_s, rel=0.02)
    assert pvariance(counts) / fmean(counts) == pytest.approx(expected, rel=0.05)


def _sine(part: float) -> float:
    """The integral of cos(2 pi t) up to this part of the period."""
    return math.sin(2 * math.pi * part) / (2 * math.pi)


@pytest.mark.parametrize(
    ("arrivals", "mass"),
    [
        pytest.param(
            DiurnalArrivals(period_s=10.0, peak_ratio=4.0),
            lambda a, b: b - a - 0.6 * (_sine(b) - _sine(a)),
            id="a sine with four times the rate at its peak",
        ),
        pytest.param(
            DiurnalArrivals(period_s=10.0, shape=(1.0, 0.0, 3.0, 4.0)),
            lambda a, b: (b - a) * (1.0, 0.0, 3.0, 4.0)[int((a + b) / 2 * 4)] / 2.0,
            id="levels",
        ),
    ],
)  # fmt: skip
def test_a_rate_that_changes_is_followed(
    arrivals: DiurnalArrivals, mass: Callable[[float, float], float]
) -> None:
    bins, periods, rate = 20, 2000, 3.0
    counts = [0] * bins
    for at_s in times_until(arrivals, rate, 10.0 * periods, 9):
        counts[int(at_s % 10.0 / 10.0 * bins)] += 1
    expected = [10.0 * periods * rate * mass(i / bins, (i + 1) / bins) for i in range(bins)]
    assert all(not count for count, e in zip(counts, expected, strict=True) if e < 1e-9)
    kept = [(count, e) for count, e in zip(counts, expected, strict=True) if e > 1e-9]
    assert abs(chi_square_z([c for c, _ in kept], [e for _, e in kept])) < 3.5
    total = sum(expected)
    assert total == pytest.approx(10.0 * periods * rate)
    assert abs(sum(counts) - total) < 4 * math.sqrt(total)


def test_even_arrivals() -> None:
    assert list(islice(arrival_times(EvenArrivals(), 4.0, Random(0)), 4)) == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("arrivals", [*PROCESSES, DiurnalArrivals(), EvenArrivals()])
def test_time_never_goes_back_and_seeds_tell_runs_apart(arrivals: Arrivals) -> None:
    first, again, other = (
        list(islice(arrival_times(arrivals, 5.0, Random(seed)), 500)) for seed in (1, 1, 2)
    )
    assert first == again == sorted(first)
    assert first[0] >= 0.0
    assert (first == other) == isinstance(arrivals, EvenArrivals)


@pytest.mark.parametrize("arrivals", [PoissonArrivals(), WeibullArrivals(cv=2.0)])
def test_another_rate_is_the_same_pattern_on_another_clock(arrivals: Arrivals) -> None:
    slow = islice(arrival_times(arrivals, 1.0, Random(4)), 300)
    fast = islice(arrival_times(arrivals, 8.0, Random(4)), 300)
    assert [t / 8.0 for t in slow] == pytest.approx(list(fast))


@pytest.mark.parametrize(
    ("make", "key"),
    [
        pytest.param(lambda: GammaArrivals(cv=0.0), "cv", id="no variation"),
        pytest.param(lambda: WeibullArrivals(cv=math.nan), "cv", id="nan"),
        pytest.param(lambda: OnOffArrivals(on_s=0.0, off_s=1.0), "on_s", id="no time"),
        pytest.param(lambda: OnOffArrivals(on_s=1, off_s=1, off_ratio=2), "off_ratio", id="ratio"),
        pytest.param(lambda: DiurnalArrivals(peak_ratio=0.5), "peak_ratio", id="peak below low"),
        pytest.param(lambda: DiurnalArrivals(shape=(0.0, 0.0)), "shape", id="never any"),
        pytest.param(lambda: DiurnalArrivals(shape=(1.0, -1.0)), "shape", id="below none"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
