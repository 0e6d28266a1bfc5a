"""Steady state: an overloaded queue is told from a busy one, and a warm-up from noise."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.measure.call_record import CallRecord
from mileage.measure.steady_state import SteadyState, mser5, steady_state
from tests.support.call_records import answer

SERVED_PER_S = 50.0


def queue(seed: int, load: float, *, until_s: float = 130.0) -> list[CallRecord]:
    """An M/M/1 queue that serves 50 requests per second, from empty."""
    generator = np.random.default_rng(seed)
    n = int(1.3 * load * SERVED_PER_S * until_s)
    arrivals = np.cumsum(generator.exponential(1.0 / (load * SERVED_PER_S), n))
    service = generator.exponential(1.0 / SERVED_PER_S, n)
    path = np.cumsum(np.concatenate(([0.0], service[:-1] - np.diff(arrivals))))
    ends = arrivals + path - np.minimum(0.0, np.minimum.accumulate(path)) + service
    kept = arrivals < until_s
    return [
        answer(begun, ended)
        for begun, ended in zip(arrivals[kept].tolist(), ends[kept].tolist(), strict=True)
    ]


def judged(seed: int, load: float) -> SteadyState:
    return steady_state(queue(seed, load), start_s=10.0, end_s=120.0)


@pytest.mark.parametrize(
    ("load", "steady_min", "grows_max"),
    [
        pytest.param(0.3, 28, 0, id="hardly used"),
        pytest.param(0.7, 28, 0, id="used well"),
        pytest.param(0.9, 27, 1, id="busy"),
    ],
)
def test_a_stable_queue_is_steady(load: float, steady_min: int, grows_max: int) -> None:
    found = [judged(seed, load) for seed in range(30)]

    assert sum(bool(s.steady) for s in found) >= steady_min
    assert sum("beyond capacity" in s.text for s in found) <= grows_max


@pytest.mark.parametrize("load", [1.1, 1.3, 2.0])
def test_an_overloaded_queue_is_told_with_the_rate_at_which_it_grows(load: float) -> None:
    found = [judged(seed, load) for seed in range(30)]

    assert all(s.steady is False and "beyond capacity" in s.text for s in found)
    growth = np.mean([s.growth_rps for s in found if s.growth_rps is not None])
    assert growth == pytest.approx((load - 1.0) * SERVED_PER_S, rel=0.15)
    shares = [s.overload_ratio for s in found if s.overload_ratio is not None]
    assert np.mean(shares) == pytest.approx(1.0 - 1.0 / load, rel=0.15)


def test_the_interval_of_the_growth_covers_the_truth() -> None:
    found = [judged(seed, 1.3).growth_ci95_rps for seed in range(100)]

    covered = sum(ci is not None and ci[0] <= 0.3 * SERVED_PER_S <= ci[1] for ci in found)
    assert covered >= 88


def test_a_server_that_is_slow_at_first_is_not_steady() -> None:
    generator = np.random.default_rng(1)
    records = [
        answer(t / 10, t / 10 + (2.0 if t < 450 else 0.5) * generator.uniform(0.9, 1.1))
        for t in range(1000)
    ]

    found = steady_state(records, start_s=0.0, end_s=100.0)

    assert found.steady is False
    assert found.transient_s == pytest.approx(45.0, abs=1.0)
    assert "warm-up" in found.text


def test_mser_finds_where_a_level_changes() -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(1.0, 0.1, 1000)
    values[:200] += 1.0

    assert mser5(values) == pytest.approx(200, abs=10)
    assert mser5(values[:19]) is None


def test_mser_agrees_with_its_definition_written_out() -> None:
    values = np.random.default_rng(3).exponential(1.0, 103)
    means = values[:100].reshape(20, 5).mean(axis=1)
    scores = [float(((means[d:] - means[d:].mean()) ** 2).sum()) / (20 - d) ** 2 for d in range(11)]

    assert mser5(values) == 5 * int(np.argmin(scores))


def test_too_few_requests_tell_nothing() -> None:
    found = steady_state(queue(1, 0.5)[:49], start_s=0.0, end_s=100.0)

    assert found.steady is None
    assert found.growth_rps is None


def test_a_window_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        steady_state([], start_s=1.0, end_s=0.0)
