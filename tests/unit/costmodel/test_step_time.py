"""StepTimeFit: planes that are known are recovered; noise, stalls and nonsense do no harm."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from random import Random

import pytest

from mileage.costmodel.step_time import StepTimeFit

MEMORY = (8e-3, 2e-5, 1e-7, 0.0)
COMPUTE = (1e-3, 3e-4, 0.0, 5e-5)


def two_planes_s(running: float, kv_tokens: float, prefill_tokens: float) -> float:
    features = (1.0, running, kv_tokens, prefill_tokens)
    return max(sum(a * b for a, b in zip(p, features, strict=True)) for p in (MEMORY, COMPUTE))


def loads(random: Random, count: int) -> Iterator[tuple[float, float, float]]:
    for _ in range(count):
        running = random.uniform(1, 128)
        prefill_tokens = random.choice([0.0, random.uniform(0, 512)])
        yield running, running * random.uniform(200, 2000), prefill_tokens


def learned(count: int = 1500, noise: float = 0.0, seed: int = 1) -> StepTimeFit:
    random, fit = Random(seed), StepTimeFit()
    for load in loads(random, count):
        fit.learn(*load, two_planes_s(*load) * random.gauss(1.0, noise))
    return fit


def errors(fit: StepTimeFit, seed: int = 99) -> list[float]:
    found = []
    for load in loads(Random(seed), 300):
        predicted_s = fit.predict(*load)
        assert predicted_s is not None
        found.append(abs(predicted_s / two_planes_s(*load) - 1.0))
    return found


def test_two_planes_are_recovered_from_exact_samples() -> None:
    fit = learned()
    assert max(errors(fit)) < 1e-3
    upper, lower = sorted(fit.planes)[::-1]
    assert upper == pytest.approx(MEMORY, rel=0.01, abs=1e-7)
    assert lower == pytest.approx(COMPUTE, rel=0.01, abs=1e-7)


def test_one_plane_is_recovered_from_exact_samples() -> None:
    random, fit = Random(3), StepTimeFit()
    for running, kv_tokens, prefill_tokens in loads(random, 300):
        fit.learn(running, kv_tokens, prefill_tokens, 0.01 * running + 0.004 * prefill_tokens)
    assert fit.predict(7.0, 3000.0, 50.0) == pytest.approx(0.27, rel=1e-3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_noise_the_error_is_that_of_the_noise(seed: int) -> None:
    fit = learned(noise=0.03, seed=seed)
    assert sum(errors(fit)) / 300 < 0.01
    # The mean of |N(0, 0.03)| is 0.024.
    assert fit.error_ratio == pytest.approx(0.024, abs=0.008)
    assert fit.good


def test_no_coefficient_is_ever_negative() -> None:
    random, fit = Random(7), StepTimeFit()
    for load in loads(random, 500):
        fit.learn(*load, random.uniform(0.001, 1.0))
        assert all(c >= 0.0 for plane in fit.planes for c in plane)


def test_nothing_is_predicted_before_there_is_a_fit() -> None:
    fit = StepTimeFit()
    for _ in range(7):
        assert fit.predict(1.0, 1.0, 0.0) is None
        fit.learn(1.0, 100.0, 0.0, 0.01)
    assert fit.error_ratio is None
    fit.learn(1.0, 100.0, 0.0, 0.01)
    assert fit.predict(1.0, 100.0, 0.0) == pytest.approx(0.01, rel=0.02)
    assert not fit.good
    for _ in range(8):
        fit.learn(1.0, 100.0, 0.0, 0.01)
    assert fit.good


def test_a_fit_of_noise_is_not_good() -> None:
    random, fit = Random(5), StepTimeFit()
    for load in loads(random, 200):
        fit.learn(*load, random.uniform(0.001, 0.1))
    assert not fit.good


def test_hours_of_one_load_leave_the_rest_of_the_fit_as_it_was() -> None:
    fit = learned(count=400, noise=0.03)
    before = [fit.predict(r, 500.0 * r, 2.0 * r) for r in (1, 16, 64, 120)]
    random = Random(4)
    for _ in range(5000):
        fit.learn(32.0, 16_000.0, 64.0, two_planes_s(32.0, 16_000.0, 64.0) * random.gauss(1, 0.03))
    after = [fit.predict(r, 500.0 * r, 2.0 * r) for r in (1, 16, 64, 120)]
    assert after == pytest.approx(before, rel=0.05)


def test_a_stall_moves_next_to_nothing() -> None:
    fit = learned(noise=0.03)
    load = (32.0, 16_000.0, 64.0)
    before = fit.predict(*load)
    assert before is not None
    for _ in range(3):
        fit.learn(*load, 10.0 * before)
    for _ in range(30):
        fit.learn(*load, two_planes_s(*load))
    assert fit.predict(*load) == pytest.approx(before, rel=0.03)
    assert fit.good


def test_after_a_lasting_change_the_fit_begins_anew() -> None:
    fit = learned(noise=0.03)
    random = Random(8)
    for load in loads(random, 100):
        fit.learn(*load, 3.0 * two_planes_s(*load))
    assert sum(abs(e - 2.0) for e in errors(fit)) / 300 < 0.1
    assert fit.good


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1e300])
@pytest.mark.parametrize("place", range(4))
def test_what_cannot_be_is_ignored(bad: float, place: int) -> None:
    fit = learned(count=50)
    before = (fit.samples, fit.planes)
    values = [8.0, 4000.0, 10.0, 0.01]
    values[place] = bad
    fit.learn(*values)
    assert (fit.samples, fit.planes) == before


def test_a_step_of_no_time_is_ignored() -> None:
    fit = StepTimeFit()
    fit.learn(1.0, 1.0, 1.0, 0.0)
    assert fit.samples == 0


def test_a_pickled_fit_goes_on_as_the_original() -> None:
    fit = learned(count=100, noise=0.1)
    copy: StepTimeFit = pickle.loads(pickle.dumps(fit))
    for load in loads(Random(6), 200):
        for each in (fit, copy):
            each.learn(*load, two_planes_s(*load))
    assert (copy.planes, copy.error_ratio) == (fit.planes, fit.error_ratio)
