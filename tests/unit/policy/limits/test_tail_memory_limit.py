"""The tail and memory limit: halve on a bad tail or a full cache, double while both are good."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.limits.tail_memory import TailMemoryConfig, TailMemoryLimit
from tests.support.limit_signals import sample_of, signals_of, view_of

TARGET_S = 1.0


def tail_memory(limit: int = 16, **config: Any) -> TailMemoryLimit:
    return TailMemoryLimit(TailMemoryConfig(**config), limit=limit)


@pytest.mark.parametrize(
    ("ttft_s", "kv", "in_flight", "limit"),
    [
        pytest.param([0.5] * 20, None, 16, 32, id="tail within the target, limit reached: double"),
        pytest.param([0.5] * 20, None, 9, 16, id="tail within the target, under-used: hold"),
        pytest.param([0.5] * 20 + [1.5], None, 16, 8, id="the slowest of 21 is the p99: halve"),
        pytest.param([0.5] * 300 + [9.0] * 2, None, 16, 32, id="2 of 302 beyond the p99: double"),
        pytest.param([9.0] * 5, None, 16, 32, id="too few to judge the tail: double"),
        pytest.param([0.5] * 20, 0.86, 16, 8, id="cache above its mark: halve"),
        pytest.param([0.5] * 20, 0.84, 16, 32, id="cache below its mark: double"),
        pytest.param([0.5] * 20, 0.86, 3, 8, id="cache above its mark, under-used: halve"),
        pytest.param([0.5] * 20, math.nan, 16, 32, id="KV usage is no number: tail alone"),
        pytest.param([0.5] * 20, 2.0, 16, 32, id="KV usage of 200 %: tail alone"),
        pytest.param([math.nan, math.inf, -1.0] * 9, None, 16, 32, id="TTFTs that cannot be"),
    ],
)
def test_tail_memory_step(
    ttft_s: list[float], kv: float | None, in_flight: int, limit: int
) -> None:
    samples = tuple(sample_of(8.0, service_ttft_s=t) for t in ttft_s)
    view = view_of(0.0, kv_cache_usage_ratio=kv)
    signals = signals_of(in_flight, samples=samples, view=view, ttft_target_s=TARGET_S)
    assert tail_memory().update(signals, 0.0).limit == limit


def test_the_wait_before_dispatch_is_not_held_against_the_limit() -> None:
    samples = tuple(sample_of(8.0, ttft_s=30.0, service_ttft_s=0.2) for _ in range(20))
    decision = tail_memory().update(signals_of(16, samples=samples, ttft_target_s=TARGET_S), 0.0)
    assert decision.reason == "p99 TTFT 200 ms within 1000 ms: doubled to 32"


@pytest.mark.parametrize(
    ("limit", "kv", "after"),
    [
        pytest.param(48, 0.1, 64, id="not doubled beyond 64"),
        pytest.param(100, 0.1, 100, id="above 64 to begin with: hold"),
        pytest.param(3, 0.9, 2, id="not halved below 2"),
        pytest.param(1, 0.9, 1, id="below 2 to begin with: hold"),
    ],
)
def test_where_steps_end(limit: int, kv: float, after: int) -> None:
    signals = signals_of(limit, view=view_of(0.0, kv_cache_usage_ratio=kv))
    assert tail_memory(limit).update(signals, 0.0).limit == after


def test_after_a_halving_it_does_not_double_for_a_while() -> None:
    policy = tail_memory()
    full = signals_of(16, view=view_of(0.0, kv_cache_usage_ratio=0.9))
    assert policy.update(full, 0.0).limit == 8
    limits = [
        policy.update(signals_of(8, view=view_of(float(t), kv_cache_usage_ratio=0.4)), t).limit
        for t in range(1, 12)
    ]
    assert limits == [8] * 9 + [16] * 2


def test_one_change_per_period() -> None:
    policy = tail_memory(2)
    found = [policy.update(signals_of(64), 0.5 * i).limit for i in range(10)]
    assert found == [4, 4, 4, 4, 8, 8, 8, 8, 16, 16]


def test_the_tail_of_the_former_limit_does_not_halve_again() -> None:
    policy = tail_memory()
    slow = (sample_of(16.0, service_ttft_s=3.0),) * 20
    assert policy.update(signals_of(16, samples=slow, ttft_target_s=TARGET_S), 0.0).limit == 8
    again = signals_of(8, samples=slow, ttft_target_s=TARGET_S)
    assert policy.update(again, 3.0).limit == 8


def test_a_stale_view_is_no_sign_of_a_full_cache_and_lets_nothing_grow() -> None:
    policy = tail_memory()
    view = view_of(0.0, kv_cache_usage_ratio=0.5)
    assert policy.update(signals_of(16, view=view), 0.0).limit == 32
    stale = view_of(1.0, kv_cache_usage_ratio=0.95)
    decision = policy.update(signals_of(32, view=stale), 60.0)
    assert decision.limit == 32
    assert decision.reason == "no TTFT target, KV usage unknown: held at 32"


def test_a_leap_of_the_clock_empties_the_window() -> None:
    policy = tail_memory(samples_min=1)
    slow = (sample_of(8.0, service_ttft_s=3.0),) * 20
    policy.update(signals_of(4, samples=slow, ttft_target_s=None), 0.0)
    decision = policy.update(signals_of(9, ttft_target_s=TARGET_S), 1e9)
    assert decision.reason == "0 of 1 requests answered: held at 16, at most 9 in flight"


@pytest.mark.parametrize(
    ("key", "value"), [("doubled_max", 1), ("halved_min", 0), ("kv_mark_ratio", 1.5)]
)
def test_bad_configuration_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"governor\.tail_memory\.{key}"):
        TailMemoryConfig(**{key: value})  # type: ignore[arg-type]
