"""The AIMD limit: grow by one, halve on a missed target, hold while nothing is known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.limits.aimd import AimdConfig, AimdLimit
from tests.support.limit_signals import sample_of, signals_of

TARGET_S = 0.06


def aimd(limit: int = 32, **config: Any) -> AimdLimit:
    return AimdLimit(AimdConfig(**config), limit=limit)


@pytest.mark.parametrize(
    ("tpot_s", "in_flight", "limit"),
    [
        pytest.param(0.02, 32, 33, id="target met, limit reached: grow"),
        pytest.param(0.02, 3, 32, id="target met, under-used: hold"),
        pytest.param(0.065, 32, 33, id="above the target by less than a tenth: grow"),
        pytest.param(0.07, 32, 16, id="target missed: halve"),
        pytest.param(0.07, 3, 16, id="target missed, under-used: halve all the same"),
        pytest.param(None, 32, 32, id="no request with a TPOT: hold"),
        pytest.param(math.nan, 32, 32, id="TPOT is no number: hold"),
        pytest.param(math.inf, 32, 32, id="TPOT is infinite: hold"),
        pytest.param(-1.0, 32, 32, id="TPOT is negative: hold"),
        pytest.param(0.0, 32, 32, id="TPOT is 0: hold"),
    ],
)
def test_aimd_step(tpot_s: float | None, in_flight: int, limit: int) -> None:
    samples = tuple(sample_of(step_s=tpot_s) for _ in range(5))
    signals = signals_of(in_flight, samples=samples, itl_target_s=TARGET_S)
    assert aimd().update(signals, 0.0).limit == limit


def test_the_reason_has_the_figures() -> None:
    samples = (sample_of(step_s=0.071),) * 5
    decision = aimd().update(signals_of(samples=samples, itl_target_s=TARGET_S), 0.0)
    assert decision.reason == "TPOT 71 ms above 66 ms: cut to 16"


@pytest.mark.parametrize("target_s", [None, 0.0, -1.0, math.nan, math.inf])
def test_without_a_target_it_grows_while_the_limit_is_reached(target_s: float | None) -> None:
    samples = (sample_of(step_s=9.0),)
    assert aimd().update(signals_of(samples=samples, itl_target_s=target_s), 0.0).limit == 33


def test_one_change_per_period() -> None:
    policy = aimd(period_s=1.0)
    good = signals_of(40, samples=(sample_of(),), itl_target_s=TARGET_S)
    times_s = [0.0, 0.5, 0.9, 1.0, 1.5, 2.0]
    assert [policy.update(good, t).limit for t in times_s] == [33, 33, 33, 34, 34, 35]


def test_requests_of_the_former_limit_do_not_halve_again() -> None:
    policy = aimd()
    old = signals_of(samples=(sample_of(32.0, 0.07),) * 10, itl_target_s=TARGET_S)
    assert policy.update(old, 0.0).limit == 16
    assert [policy.update(old, float(t)).limit for t in range(1, 6)] == [16] * 5
    new = signals_of(samples=(sample_of(16.0, 0.07),) * 10, itl_target_s=TARGET_S)
    assert policy.update(new, 6.0).limit == 8


def test_a_single_slow_request_does_not_halve() -> None:
    policy = aimd()
    samples = (sample_of(step_s=9.0),)
    decision = policy.update(signals_of(samples=samples, itl_target_s=TARGET_S), 0.0)
    assert decision.limit == 32


def test_the_mean_moves_by_a_fifth_with_each_request() -> None:
    policy = aimd(period_s=0.001)
    first = signals_of(samples=(sample_of(step_s=0.05),) * 9, itl_target_s=TARGET_S)
    assert policy.update(first, 0.0).limit == 33
    # 0.05 + 0.2 * (0.10 - 0.05) = 0.060, then 0.068.
    slower = signals_of(33, samples=(sample_of(step_s=0.10),), itl_target_s=TARGET_S)
    assert policy.update(slower, 1.0).limit == 34
    assert policy.update(slower, 2.0).limit == 17


def test_in_between_the_peak_counts_not_only_the_last_half_second() -> None:
    policy = aimd()
    reached = signals_of(32, samples=(sample_of(),), itl_target_s=TARGET_S)
    assert policy.update(reached, 0.0).limit == 33
    assert policy.update(signals_of(33, itl_target_s=TARGET_S), 0.5).limit == 33
    assert policy.update(signals_of(20, itl_target_s=TARGET_S), 1.0).limit == 34


def test_after_a_leap_of_the_clock_what_was_known_is_forgotten() -> None:
    policy = aimd()
    slow = signals_of(samples=(sample_of(step_s=0.07),) * 4, itl_target_s=TARGET_S)
    assert policy.update(slow, 0.0).limit == 32
    later = signals_of(samples=(sample_of(step_s=0.07),), itl_target_s=TARGET_S)
    assert policy.update(later, 36_000.0).limit == 32


def test_it_never_leaves_one_and_the_engines_own() -> None:
    policy = aimd(limit=1)
    slow = signals_of(1, samples=(sample_of(1.0, 0.2),) * 5, itl_target_s=TARGET_S)
    assert policy.update(slow, 0.0).limit == 1
    fast = signals_of(256, samples=(sample_of(256.0),) * 50, itl_target_s=TARGET_S)
    policy = aimd(limit=256)
    assert policy.update(fast, 0.0).limit == 256


@pytest.mark.parametrize(
    ("key", "value"),
    [("backoff_ratio", 1.0), ("miss_ratio", 0.0), ("smoothing_ratio", 0.0), ("period_s", 0.0)],
)
def test_bad_configuration_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"governor\.aimd\.{key}"):
        AimdConfig(**{key: value})  # type: ignore[arg-type]
