"""Fitted step times: planes that are known are found again, and survive JSON."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.fitted import FittedSteps, StepSample, fit_steps

TRUTH = ((0.008, 0.00002, 3e-8, 4e-6), (0.002, 0.0001, 1e-8, 5e-5))


def seconds(running: float, kv_tokens: float, prefill_tokens: float) -> float:
    return max(a + b * running + c * kv_tokens + d * prefill_tokens for a, b, c, d in TRUTH)


def samples(count: int, noise: float, seed: int = 1) -> list[StepSample]:
    random = Random(seed)
    found = []
    for _ in range(count):
        running = random.randint(1, 64)
        kv_tokens = running * random.randint(50, 4000)
        prefill = random.choice((0, 0, 0, random.randint(16, 2048)))
        step_s = seconds(running, kv_tokens, prefill) * math.exp(random.gauss(0.0, noise))
        found.append(StepSample(running, kv_tokens, prefill, step_s))
    return found


def test_known_planes_are_found_again() -> None:
    fitted = fit_steps(samples(1500, 0.02))
    assert fitted.error_ratio < 0.03
    table = fitted.step_table(64, 2048)
    for running, context, prefill in ((1, 100, 0), (32, 2000, 0), (64, 500, 0), (16, 1000, 1024)):
        kv_tokens = running * context
        predicted = table.step_s(running, kv_tokens, prefill, prefill * prefill / 2)
        assert predicted == pytest.approx(seconds(running, kv_tokens, prefill), rel=0.1)


def test_stalls_and_nonsense_move_it_little() -> None:
    random = Random(3)
    spoiled = [
        s._replace(step_s=s.step_s * 30 if random.random() < 0.02 else s.step_s)
        for s in samples(1500, 0.02)
    ]
    spoiled[100:100] = [StepSample(1, math.nan, 0, 1.0), StepSample(1, 1, 0, -5.0)]
    table = fit_steps(spoiled).step_table(64, 2048)
    assert table.step_s(32, 32 * 1000) == pytest.approx(seconds(32, 32000, 0), rel=0.1)


def test_the_table_is_the_larger_plane() -> None:
    fitted = FittedSteps(planes=TRUTH, samples=1, error_ratio=0.0)
    table = fitted.step_table(8, 100)
    assert (table.requests_max, table.tokens_max) == (8, 108)
    for load in ((1, 10, 0), (8, 9000, 0), (8, 9000, 100), (0, 0, 100)):
        assert table.step_s(*load) == pytest.approx(seconds(*load))


def test_it_survives_json() -> None:
    fitted = fit_steps(samples(200, 0.01), engine="SmolLM2 on two cores")
    assert FittedSteps.from_json(fitted.to_json()) == fitted


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"planes":[],"samples":1,"error_ratio":0}', id="no plane"),
        pytest.param('{"planes":[[0,0,0,0]],"samples":1,"error_ratio":0}', id="nothing takes time"),
        pytest.param('{"planes":[[-1,0,0,1]],"samples":1,"error_ratio":0}', id="less than nothing"),
        pytest.param('{"planes":[[1,0,0,0]],"samples":1,"error_ratio":0,"x":1}', id="unknown key"),
    ],
)
def test_what_is_no_fit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        FittedSteps.from_json(text)


@pytest.mark.parametrize("count", [0, 5])
def test_too_few_samples_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="samples"):
        fit_steps(samples(count, 0.0))
