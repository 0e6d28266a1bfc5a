"""The model limit, step by step: when it holds, grows, falls, and what it goes by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.limits.limit import LimitDecision, RequestSample
from mileage.policy.limits.model import ModelConfig, ModelLimit
from tests.support.limit_signals import sample_of, signals_of, view_of

STALL_S = 0.002


def step_s(running: float, prefill_tokens: float = 0.0) -> float:
    return 8e-3 + 1e-4 * running + 5e-5 * prefill_tokens


def seen(running: float, prefill_tokens: float, stall_s: float = STALL_S) -> RequestSample:
    mean_s = step_s(running, prefill_tokens)
    return sample_of(
        running, mean_s, itl_p99_s=mean_s + stall_s, prefill_tokens_per_step=prefill_tokens
    )


def loads(most: float, count: int = 64) -> list[RequestSample]:
    random = Random(1)
    found = [seen(random.uniform(1, most), random.uniform(0, 20)) for _ in range(count - 1)]
    return [*found, seen(most, 10.0)]


def taught(limit: int, samples: Sequence[RequestSample], **signals: Any) -> ModelLimit:
    """A policy that has seen the samples, at 0 s, without being asked to change anything."""
    policy = ModelLimit(ModelConfig(), limit=limit)
    for sample in samples:
        policy.update(signals_of(0, samples=(sample,), waiting=0, **signals), 0.0)
    return policy


def settle(policy: ModelLimit, in_flight: int, **signals: Any) -> LimitDecision:
    """Enough requests under what is in force now, then one more decision."""
    target_s = signals.get("itl_target_s", 0.02)
    quiet = signals_of(0, waiting=0, itl_target_s=target_s)
    policy.update(quiet, 100.0)
    samples = tuple(seen(in_flight, 10.0) for _ in range(8))
    return policy.update(
        signals_of(in_flight, samples=samples, **{"itl_target_s": target_s} | signals), 110.0
    )


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="no requests ended"),
        pytest.param(loads(200.0, 8), id="a few have ended"),
        pytest.param([sample_of(step_s=math.nan)] * 40, id="none with a time"),
    ],
)
def test_a_cold_start_does_not_throttle(samples: list[RequestSample]) -> None:
    policy = ModelLimit(ModelConfig(), limit=256)
    decision = policy.update(signals_of(200, samples=tuple(samples), itl_target_s=0.02), 0.0)
    assert (decision.limit, decision.prefill_tokens_max) == (256, None)


def test_it_falls_at_once_to_where_the_mean_step_meets_the_cap() -> None:
    policy = ModelLimit(ModelConfig(), limit=256)
    samples = tuple(loads(200.0))
    decision = policy.update(signals_of(200, samples=samples, itl_target_s=0.02), 0.0)
    # 0.9 * 20 ms = 8 ms + 0.1 ms * n + the mix's prefill.
    per_running = sum(s.prefill_tokens_per_step for s in samples) / sum(
        s.running_mean for s in samples
    )
    exact = (0.018 - 8e-3) / (1e-4 + 5e-5 * per_running)
    assert decision.limit == pytest.approx(exact, abs=2)
    assert "cap 18 ms: cut to" in decision.reason


def test_stalls_of_the_time_before_the_prefill_was_bounded_do_not_count() -> None:
    policy = ModelLimit(ModelConfig(), limit=64)
    samples = tuple(seen(n, 10.0, stall_s=0.5) for n in range(1, 65))
    decision = policy.update(signals_of(64, samples=samples, itl_target_s=0.02), 0.0)
    assert decision.limit >= 58
    assert "+ stall 0 ms" in decision.reason
    assert decision.prefill_tokens_max is not None


def test_stalls_lower_the_limit_by_halves_each_of_which_is_seen_first() -> None:
    policy = ModelLimit(ModelConfig(), limit=64)
    first = (*loads(64.0), *(seen(n, 10.0) for n in range(1, 65)))
    policy.update(signals_of(64, samples=first, itl_target_s=0.02), 0.0)
    stalled = tuple(seen(64.0, 10.0, stall_s=0.0085) for _ in range(64))
    limits = [
        policy.update(signals_of(64, samples=stalled, itl_target_s=0.02), t).limit
        for t in (10.0, 10.5, 11.0, 11.5)
    ]
    assert limits == [limits[0]] * 4
    assert limits[0] in (29, 30, 31, 32)
    fewer = tuple(seen(30.0, 10.0, stall_s=0.0085) for _ in range(64))
    decision = policy.update(signals_of(30, samples=fewer, itl_target_s=0.02), 30.0)
    assert decision.limit == limits[0] // 2
    # That is further than it had to go: (18 - 8.5 - 8) / (0.1 + 0.05 / 3).
    assert decision.limit > 12


def test_it_grows_at_most_twofold_and_half_the_way() -> None:
    policy = taught(8, loads(100.0), itl_target_s=0.02)
    assert settle(policy, 8).limit == 16
    policy = taught(60, loads(100.0), itl_target_s=0.02)
    limit = settle(policy, 60).limit
    assert 60 < limit < 75


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"in_flight_peak": 5}, "at most 5 in flight", id="under-used"),
        pytest.param({"running_max": 8}, "held at 8", id="the engine runs no more"),
    ],
)
def test_it_does_not_grow(changes: dict[str, Any], reason: str) -> None:
    policy = taught(8, loads(100.0), itl_target_s=0.02)
    policy.update(signals_of(0, waiting=0, itl_target_s=0.02), 100.0)
    samples = tuple(seen(8.0, 10.0) for _ in range(8))
    values = {"samples": samples, "itl_target_s": 0.02, **changes}
    decision = policy.update(signals_of(5, **values), 110.0)
    assert decision.limit == 8
    assert reason in decision.reason


def test_it_does_not_grow_beyond_twice_what_was_seen() -> None:
    policy = taught(30, loads(10.0), itl_target_s=0.02)
    decision = settle(policy, 10, in_flight_peak=30)
    assert decision.limit == 30


def test_far_beyond_what_was_seen_the_fit_lowers_nothing() -> None:
    policy = ModelLimit(ModelConfig(), limit=256)
    samples = tuple(loads(10.0))
    decision = policy.update(signals_of(10, samples=samples, itl_target_s=0.02), 0.0)
    assert decision.limit == 256
    assert decision.reason.endswith("held at 256, at most 10 in flight")


def test_a_target_that_none_can_meet_costs_no_more_throughput_than_the_mean_step() -> None:
    policy = ModelLimit(ModelConfig(), limit=64)
    target_s = 0.02
    samples = tuple(seen(n, 10.0) for n in range(1, 65))
    policy.update(signals_of(64, samples=samples, itl_target_s=target_s), 0.0)
    hopeless = tuple(seen(64.0, 10.0, stall_s=0.5) for _ in range(64))
    decision = policy.update(signals_of(64, samples=hopeless, itl_target_s=target_s), 10.0)
    assert decision.limit >= 58
    assert "met by none" in decision.reason


def test_without_a_target_the_engines_own_limit_is_the_limit() -> None:
    policy = ModelLimit(ModelConfig(), limit=256)
    decision = policy.update(signals_of(200, samples=tuple(loads(200.0))), 0.0)
    assert (decision.limit, decision.prefill_tokens_max) == (256, None)
    policy = ModelLimit(ModelConfig(), limit=16)
    limits = [
        policy.update(signals_of(n, samples=tuple(loads(float(n)))), float(t)).limit
        for t, n in enumerate([16, 32, 64, 128, 192, 224, 240, 248])
    ]
    assert limits == [32, 64, 128, 192, 224, 240, 248, 248]


@pytest.mark.parametrize(
    ("view", "limit"),
    [
        pytest.param(view_of(0.0, running=64, kv_cache_usage_ratio=0.96), 60, id="too full: less"),
        pytest.param(view_of(0.0, running=64, kv_cache_usage_ratio=0.3), 64, id="room: as it is"),
        pytest.param(view_of(0.0, running=2, kv_cache_usage_ratio=0.6), 64, id="by two: no matter"),
        pytest.param(view_of(-60.0, running=64, kv_cache_usage_ratio=0.96), 64, id="stale: unused"),
        pytest.param(view_of(0.0, running=64, kv_cache_usage_ratio=1.7), 64, id="170 %: unused"),
        pytest.param(view_of(0.0, running=-4, kv_cache_usage_ratio=0.96), 60, id="running of -4"),
        pytest.param(view_of(math.nan, kv_cache_usage_ratio=0.96), 64, id="of no time: unused"),
    ],
)
def test_memory_bounds_the_limit_by_fresh_views(view: Any, limit: int) -> None:
    policy = ModelLimit(ModelConfig(), limit=64)
    assert policy.update(signals_of(64, view=view, running_max=64), 0.0).limit == limit


def test_an_engine_that_stopped_telling_its_memory_does_not_grow() -> None:
    policy = taught(8, loads(100.0), itl_target_s=0.02)
    policy.update(signals_of(0, view=view_of(0.0, running=1, kv_cache_usage_ratio=0.5)), 1.0)
    decision = settle(policy, 8, view=view_of(0.0, running=8, kv_cache_usage_ratio=0.1))
    assert decision.limit == 8
    assert decision.reason.endswith("KV usage unknown")


def test_a_poor_fit_is_replaced_by_feedback() -> None:
    random = Random(2)
    policy = ModelLimit(ModelConfig(), limit=64)
    odd = tuple(
        sample_of(random.uniform(32, 64), random.uniform(0.01, 0.2), itl_p99_s=0.05)
        for _ in range(60)
    )
    decision = policy.update(signals_of(64, samples=odd, itl_target_s=0.02), 0.0)
    assert decision.limit == 32
    assert "p99 gap 50 ms above 18 ms: cut to 32" in decision.reason
    assert decision.prefill_tokens_max is None


def test_prefill_in_flight_keeps_the_cap_and_meets_the_queues_deadlines() -> None:
    def bound(waiting: int) -> float:
        policy = taught(64, loads(64.0), itl_target_s=0.02)
        decision = policy.update(
            signals_of(64, waiting=waiting, itl_target_s=0.02, ttft_target_s=1.0), 1.0
        )
        assert decision.prefill_tokens_max is not None
        return decision.prefill_tokens_max

    # Prompts have 100 tokens. One may always go; a long queue gets what the cap leaves, which at 64
    # requests is (18 - 14.4) / 0.05 = 72 tokens, less than one prompt.
    assert bound(1) == bound(1000) == 100

    def roomy(waiting: int) -> float:
        policy = taught(64, loads(64.0), itl_target_s=0.06)
        signals = signals_of(64, waiting=waiting, itl_target_s=0.06, ttft_target_s=1.0)
        return policy.update(signals, 1.0).prefill_tokens_max or 0.0

    # Here it leaves (54 - 14.4) / 0.05 = 792 tokens.
    assert roomy(1) < roomy(60) < roomy(1000)
    assert roomy(1000) == pytest.approx(792, rel=0.03)


def test_after_hours_of_silence_it_holds_what_it_had() -> None:
    policy = taught(64, loads(64.0), itl_target_s=0.06)
    before = policy.update(signals_of(64, itl_target_s=0.06), 1.0)
    after = policy.update(signals_of(1, waiting=0, itl_target_s=0.06), 36_000.0)
    assert (after.limit, after.prefill_tokens_max) == (before.limit, before.prefill_tokens_max)


def test_a_starving_bound_is_loosened_while_gaps_are_short() -> None:
    policy = taught(64, loads(64.0), itl_target_s=0.06)
    starving = signals_of(20, waiting=50, itl_target_s=0.06)
    bounds = [policy.update(starving, 1.0 + t).prefill_tokens_max or 0 for t in range(5)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > 2 * bounds[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [("cap_ratio", 1.5), ("attained_ratio", 1.0), ("kv_mark_ratio", 0.0), ("period_s", -1.0)],
)
def test_bad_configuration_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"governor\.model\.{key}"):
        ModelConfig(**{key: value})  # type: ignore[arg-type]
