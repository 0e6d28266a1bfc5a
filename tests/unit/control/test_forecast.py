"""Forecasts of waiting and of first tokens."""

from __future__ import annotations

from random import Random

import pytest

from mileage.control.forecast import ServiceForecast, Speed, WaitForecast


def test_the_time_to_a_first_token_is_learned_from_what_it_depends_on() -> None:
    service, random = ServiceForecast(), Random(1)
    for i in range(300):
        prompt, ahead, others = (
            random.randint(1, 500),
            random.choice([0, 200]),
            random.randint(0, 9),
        )
        took_s = 0.05 + 0.002 * prompt + 0.001 * ahead + 0.01 * others
        service.learn(prompt, ahead, others, took_s, i * 0.1)
    assert service.known
    assert service.predict(100, 0, 0) == pytest.approx(0.25, rel=0.05)
    assert service.predict(100, 200, 9) == pytest.approx(0.54, rel=0.05)
    assert service.residual_ratio < 0.02


def test_equal_requests_for_ever_do_not_blow_it_up() -> None:
    service = ServiceForecast()
    for i in range(20_000):
        service.learn(100, 0, 3, 0.2, i * 0.1)
    assert service.predict(100, 0, 3) == pytest.approx(0.2, rel=0.01)
    service.learn(400, 0, 3, 0.8, 3000.0)
    assert 0.0 <= service.predict(100, 0, 3) < 1.0
    assert 0.0 <= service.predict(400, 0, 3) < 2.0


@pytest.mark.parametrize(
    "ahead_ratio",
    [
        pytest.param(0.3, id="a replica with something to do"),
        pytest.param(0.02, id="one that is nearly always free, so that some is seen rarely"),
        pytest.param(0.0, id="one where prompts never meet"),
    ],
)
def test_what_was_learned_stays_true_however_long_it_serves(ahead_ratio: float) -> None:
    service, random = ServiceForecast(), Random(2)
    for i in range(30_000):
        prompt = min(8000.0, random.lognormvariate(6.5, 1.0))
        others = random.randint(5, 15)
        ahead = random.uniform(100, 2000) if random.random() < ahead_ratio else 0.0
        took_s = 0.015 + 2.4e-5 * (prompt + ahead) + 2e-4 * others
        if service.known:
            expected_s = service.predict(prompt, 0.0, others) * (1.0 + service.residual_ratio)
            assert expected_s < 2.0 * took_s + 0.05, i
        service.learn(prompt, ahead, others, took_s * random.uniform(0.8, 1.2), i * 0.2)


@pytest.mark.parametrize("took_s", [-1.0, float("nan"), float("inf"), 1e9])
def test_times_that_cannot_be_are_left_out(took_s: float) -> None:
    service = ServiceForecast()
    service.learn(100, 0, 0, took_s, 1.0)
    assert service.samples == 0


def test_speed_follows_the_last_seconds() -> None:
    speed = Speed()
    assert speed.value is None
    for _ in range(20):
        speed.learn(10.0, 5.0, 1.0)
    assert speed.value == pytest.approx(2.0)
    for _ in range(40):
        speed.learn(5.0, 5.0, 1.0)
    assert speed.value == pytest.approx(1.0, rel=0.05)


def test_waits_that_turn_out_longer_correct_the_forecast_and_time_forgets_it() -> None:
    wait = WaitForecast()
    assert wait.wait_s(10.0, 5.0) == 2.0
    for _ in range(100):
        wait.waited(1.0, 2.0)
    corrected = wait.wait_s(10.0, 5.0)
    assert corrected > 3.0
    for _ in range(300):
        wait.relax()
    assert wait.wait_s(10.0, 5.0) == pytest.approx(2.0, rel=0.02)
    assert wait.wait_s(10.0, 0.0) == 0.0
