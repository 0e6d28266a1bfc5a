"""Plane: least squares with bounds, against brute force; and what it forgets."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from mileage.costmodel.plane import Features, Plane


def plane_through(points: list[tuple[Features, float]], memory_samples: float = 1e9) -> Plane:
    plane = Plane(memory_samples=memory_samples, ridge=0.0)
    for features, step_s in points:
        plane.learn(features, step_s, 1.0, 1.0)
    plane.solve()
    return plane


def points_of(random: Random, count: int) -> list[tuple[Features, float]]:
    """Noise only: many of the best coefficients would be negative."""
    return [
        ((1.0, random.uniform(0, 9), random.uniform(0, 9), random.uniform(0, 9)), random.random())
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_solution_is_the_best_of_all_non_negative_ones(seed: int) -> None:
    points = points_of(Random(seed), 12)
    matrix = np.array([p[0] for p in points])
    wanted = np.array([p[1] for p in points])

    def error(coefficients: np.ndarray) -> float:
        return float(((matrix @ coefficients - wanted) ** 2).sum())

    oracle = float((wanted**2).sum())
    for size in range(1, 5):
        for axes in map(list, itertools.combinations(range(4), size)):
            found = np.zeros(4)
            found[axes] = np.linalg.lstsq(matrix[:, axes], wanted, rcond=None)[0]
            if (found >= 0).all():
                oracle = min(oracle, error(found))
    got = np.array(plane_through(points).coefficients)
    assert (got >= 0).all()
    assert error(got) == pytest.approx(oracle, rel=1e-6)


def test_what_is_not_seen_any_more_is_not_forgotten() -> None:
    plane = Plane(memory_samples=50, ridge=0.01)
    for running in range(1, 65):
        plane.learn((1.0, running, 0.0, 0.0), 0.008 + 0.0001 * running, 0.01, 1.0)
    random = Random(1)
    for _ in range(5000):
        noisy_s = (0.008 + 0.0001 * 32) * random.gauss(1.0, 0.03)
        plane.learn((1.0, 32.0, 0.0, 0.0), noisy_s, 0.01, 1.0)
    plane.solve()
    assert plane.coefficients[0] == pytest.approx(0.008, rel=0.1)
    assert plane.coefficients[1] == pytest.approx(0.0001, rel=0.2)


def test_after_a_constant_load_one_odd_sample_does_not_tilt_the_plane() -> None:
    # The wind-up of plain exponential forgetting: the variance of what is not excited grows until
    # the first small change throws the coefficients anywhere.
    plane = Plane(memory_samples=20, ridge=0.01)
    for _ in range(10_000):
        plane.learn((1.0, 32.0, 5000.0, 10.0), 0.01, 0.01, 1.0)
    plane.solve()
    before = plane.predict((1.0, 64.0, 10_000.0, 20.0))
    plane.learn((1.0, 33.0, 5000.0, 10.0), 0.0105, 0.01, 1.0)
    plane.solve()
    assert plane.predict((1.0, 64.0, 10_000.0, 20.0)) == pytest.approx(before, rel=0.1)


def test_recent_samples_replace_older_ones_along_their_own_direction() -> None:
    plane = Plane(memory_samples=20, ridge=0.01)
    for step_s in [0.01] * 200 + [0.02] * 100:
        plane.learn((1.0, 8.0, 0.0, 0.0), step_s, 0.01, 1.0)
    plane.solve()
    assert plane.predict((1.0, 8.0, 0.0, 0.0)) == pytest.approx(0.02, rel=0.01)


def test_what_never_varied_is_shared_out_evenly() -> None:
    plane = Plane(memory_samples=100, ridge=0.01)
    for _ in range(50):
        plane.learn((1.0, 10.0, 0.0, 0.0), 0.02, 0.02, 1.0)
    plane.solve()
    # Half of it constant, half of it per request: twice the load needs half as much more.
    assert plane.predict((1.0, 20.0, 0.0, 0.0)) == pytest.approx(0.03, rel=0.01)


def test_without_samples_every_coefficient_is_zero() -> None:
    plane = Plane(memory_samples=100, ridge=0.01)
    plane.solve()
    assert plane.coefficients == (0.0, 0.0, 0.0, 0.0)
