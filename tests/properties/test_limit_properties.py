"""Limits policies: whatever they are told, they answer within bounds, and always the same."""

from __future__ import annotations

import math
import pickle

import hypothesis.strategies as st
from hypothesis import given, settings

from mileage.control.config import GovernorConfig
from mileage.core.replica import ReplicaView
from mileage.costmodel.step_time import StepTimeFit
from mileage.policy.limits.choose import LIMIT_POLICIES, make_limit
from mileage.policy.limits.limit import LimitDecision, LimitPolicy, LimitSignals, RequestSample

numbers = st.floats(0.0, 1e4) | st.sampled_from(
    [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-300, 1e300]
)
times = st.none() | st.floats(0.001, 0.2) | numbers
counts = st.integers(-3, 400)

views = st.none() | st.builds(
    ReplicaView,
    replica=st.just("replica"),
    observed_s=st.floats(0.0, 1e5) | st.just(math.nan),
    running=st.none() | counts,
    waiting=st.none() | counts,
    running_max=st.none() | counts,
    kv_cache_usage_ratio=st.none() | st.floats(0.0, 1.0) | numbers,
    kv_tokens_max=st.none() | st.integers(-10, 10**7),
    compute_busy_ratio=st.none() | st.floats(0.0, 1.0) | numbers,
)
samples = st.builds(
    RequestSample,
    prompt_tokens=st.integers(-5, 10**6),
    output_tokens=st.integers(-5, 10**6),
    stream=st.booleans(),
    ttft_s=times,
    service_ttft_s=times,
    itl_p99_s=times,
    step_s=times,
    running_mean=st.floats(1.0, 300.0) | numbers,
    kv_tokens_mean=st.floats(0.0, 1e6) | numbers,
    prefill_tokens_per_step=st.floats(0.0, 1e3) | numbers,
)
signals = st.builds(
    LimitSignals,
    view=views,
    running_max=st.none() | counts,
    in_flight=counts,
    in_flight_peak=counts,
    waiting=counts,
    arrivals=st.floats(0.0, 100.0) | numbers,
    samples=st.lists(samples, max_size=12).map(tuple),
    ttft_target_s=st.none() | numbers,
    itl_target_s=st.none() | st.floats(0.005, 0.2) | numbers,
    modality_counts=st.tuples(counts, counts, counts),
    load_mean=st.floats(0.0, 1e4) | numbers,
)
steps = st.lists(st.tuples(signals, st.sampled_from([0.0, 0.5, 1.0, 7.0, 1e4, 1e8])), max_size=25)
names = st.sampled_from(sorted(LIMIT_POLICIES))
bounds = st.tuples(st.integers(1, 40), st.integers(40, 2000))


def policy_of(name: str, low: int, high: int, limit: int) -> LimitPolicy:
    config = GovernorConfig(policy=name, limit_min=low, limit_max=high)  # type: ignore[arg-type]
    return make_limit(config, limit=limit)


def decisions(
    policy: LimitPolicy, told: list[tuple[LimitSignals, float]], now_s: float = 0.0
) -> list[LimitDecision]:
    found = []
    for signal, passed_s in told:
        now_s += passed_s
        found.append(policy.update(signal, now_s))
    return found


@settings(max_examples=300)
@given(names, bounds, st.integers(-5, 5000), steps)
def test_whatever_is_told_the_limit_is_within_bounds(
    name: str, low_high: tuple[int, int], limit: int, told: list[tuple[LimitSignals, float]]
) -> None:
    low, high = low_high
    found = decisions(policy_of(name, low, high, limit), told)
    for (signal, _), decision in zip(told, found, strict=True):
        engine = signal.running_max
        most = high if engine is None or engine < 1 else min(high, engine)
        assert type(decision.limit) is int
        assert min(low, most) <= decision.limit <= most
        assert decision.reason
        bound = decision.prefill_tokens_max
        assert bound is None or (type(bound) is int and bound >= 0)


@given(names, steps)
def test_what_is_decided_depends_on_what_was_told_alone(
    name: str, told: list[tuple[LimitSignals, float]]
) -> None:
    first, second = (policy_of(name, 1, 1000, 64) for _ in range(2))
    assert decisions(first, told) == decisions(second, told)


@given(names, steps, steps)
def test_a_pickled_policy_goes_on_as_the_original(
    name: str,
    before: list[tuple[LimitSignals, float]],
    after: list[tuple[LimitSignals, float]],
) -> None:
    policy = policy_of(name, 1, 1000, 64)
    decisions(policy, before)
    now_s = sum(passed_s for _, passed_s in before)
    copy: LimitPolicy = pickle.loads(pickle.dumps(policy))
    assert decisions(copy, after, now_s) == decisions(policy, after, now_s)


learned = st.tuples(
    st.floats(0.0, 1e3), st.floats(0.0, 1e6), st.floats(0.0, 1e4), st.floats(1e-4, 10.0)
)


@given(st.lists(learned, max_size=120), st.tuples(*[st.floats(0.0, 1e4)] * 3))
def test_the_fitted_step_is_finite_and_never_falls_with_load(
    told: list[tuple[float, float, float, float]], load: tuple[float, float, float]
) -> None:
    fit = StepTimeFit()
    for sample in told:
        fit.learn(*sample)
    predicted_s = fit.predict(*load)
    if predicted_s is None:
        assert len(told) < 8
        return
    assert 0.0 <= predicted_s < math.inf
    assert all(c >= 0.0 for plane in fit.planes for c in plane)
    running, kv_tokens, prefill_tokens = load
    more_s = fit.predict(running + 1.0, kv_tokens + 10.0, prefill_tokens + 1.0)
    assert more_s is not None
    assert more_s >= predicted_s
