"""The latency model against closed forms on an engine whose step time is known."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.policy.limits.latency import LatencyModel
from mileage.policy.limits.limit import RequestSample
from tests.support.limit_signals import sample_of

STALL_S = 0.02


def step_s(running: float, prefill_tokens: float) -> float:
    return 8e-3 + 1e-4 * running + 5e-5 * prefill_tokens


def seen(running: float, prefill_tokens: float, stall_s: float = STALL_S) -> RequestSample:
    mean_s = step_s(running, prefill_tokens)
    return sample_of(
        running,
        mean_s,
        itl_p99_s=mean_s + stall_s,
        prefill_tokens_per_step=prefill_tokens,
        kv_tokens_mean=0.0,
    )


@pytest.fixture
def model() -> LatencyModel:
    """Knows the engine; of late, every running request came with half a token of prefill a step."""
    found, random = LatencyModel(), Random(1)
    for _ in range(200):
        found.learn([seen(random.uniform(1, 100), random.uniform(0, 200))], 0.0)
    found.learn([seen(running, 0.5 * running) for running in range(1, 65)], 10.0)
    return found


def test_step_time_follows_the_mix(model: LatencyModel) -> None:
    assert model.prefill_tokens_ratio == pytest.approx(0.5)
    assert model.step_s(40) == pytest.approx(step_s(40, 20), rel=0.01)
    assert model.step_s(40, 0.0) == pytest.approx(step_s(40, 0), rel=0.01)
    assert model.running_seen == 64


def test_stalls_are_what_gaps_exceed_a_step_by(model: LatencyModel) -> None:
    stalls = model.stalls(-math.inf)
    # The first of them ran alone: it says nothing about company.
    assert stalls == pytest.approx([STALL_S] * 63, rel=0.02)


def test_stalls_of_requests_that_began_before_do_not_count(model: LatencyModel) -> None:
    # Each stayed for its TTFT and 100 steps of about 10 ms, and ended at 10 s.
    assert 0 < len(model.stalls(8.6)) < 64
    assert model.stalls(10.0) == []


@pytest.mark.parametrize("cap_s", [0.031, 0.035, 0.04, 0.05])
def test_most_within_a_cap_equals_brute_force(model: LatencyModel, cap_s: float) -> None:
    best = max(n for n in range(1, 257) if step_s(n, 0.5 * n) + STALL_S <= cap_s)
    assert model.most_within(cap_s, STALL_S, 256) == pytest.approx(best, abs=1)


class Known:
    """A fit that is given."""

    def __init__(self, planes: list[tuple[float, float, float, float]]) -> None:
        self.planes, self.samples = planes, 1


@given(
    planes=st.lists(
        st.tuples(*(st.sampled_from((0.0, x, 3 * x)) for x in (0.02, 1e-3, 1e-6, 5e-5))),
        min_size=1,
        max_size=2,
    ),
    ratio=st.sampled_from((0.0, 0.5, 20.0)),
    cap_s=st.just(0.0) | st.floats(1e-6, 0.3),
    ceiling=st.integers(1, 300),
)
def test_the_closed_forms_are_exact_whatever_the_planes(
    planes: list[tuple[float, float, float, float]], ratio: float, cap_s: float, ceiling: int
) -> None:
    """Brute force over the requests; over the tokens, that a hair more would be too many."""
    model = LatencyModel()
    model.fit = Known(planes)  # type: ignore[assignment]
    model.prefill_tokens_ratio = ratio
    fitting = [n for n in range(1, ceiling + 1) if model.step_s(n) + 0.01 <= cap_s]
    assert model.most_within(cap_s, 0.01, ceiling) == max(fitting, default=0)
    tokens = model.prefill_within(cap_s, ceiling)
    if 0.0 < tokens < math.inf:
        assert model.step_s(ceiling, tokens * 0.999) <= cap_s < model.step_s(ceiling, tokens * 1.01)
    elif tokens:
        assert model.step_s(ceiling, 1e6) <= cap_s
    rate = 1000.0 * cap_s
    needed = model.prefill_for(rate, ceiling)
    if 0.0 < needed < math.inf:
        for part, enough in ((0.99, False), (1.001, True)):
            lasts_s = model.step_s(ceiling, 0.0) + model.step_s(ceiling, part * needed)
            assert (part * needed >= rate * lasts_s) is enough


def test_most_within_a_cap_at_its_ends(model: LatencyModel) -> None:
    assert model.most_within(0.001, 0.0, 256) == 0
    assert model.most_within(9.0, 0.0, 256) == 256


def test_where_some_stalls_are_hopeless_the_best_of_the_others_is_taken(
    model: LatencyModel,
) -> None:
    stalls = [0.005] * 7 + [1.0] * 3
    found = model.best_attained(0.03, stalls, 256)

    def attained(running: int) -> float:
        within = sum(model.step_s(running) + stall <= 0.03 for stall in stalls)
        return within * running / model.step_s(running)

    assert attained(found) >= 0.95 * max(map(attained, range(1, 257)))
    assert model.best_attained(0.03, [1.0] * 10, 256) == 0


def test_alone_is_best_where_company_brings_nothing() -> None:
    """Compute-bound: eight at once are as fast as one after the other, and stall each other."""
    model = LatencyModel()
    for n in range(1, 9):
        sample = sample_of(float(n), step_s=0.002 + 0.01 * n, prefill_tokens_per_step=0.0)
        model.learn([sample] * 6, float(n))
    assert model.fit.good
    assert model.best_attained(0.05, [0.2] * 10, 8) == 1
    assert model.best_attained(0.05, [0.0] * 9 + [0.2], 8) > 1
    assert model.best_attained(0.005, [0.2] * 10, 8) == 0


def test_prefill_within_a_cap_equals_its_closed_form(model: LatencyModel) -> None:
    assert model.prefill_within(0.05, 100) == pytest.approx((0.05 - 0.018) / 5e-5, rel=0.02)
    assert model.prefill_within(0.01, 100) == pytest.approx(0.0, abs=1.0)
    assert model.prefill_within(1000.0, 100) == math.inf


def test_prefill_for_a_rate_equals_its_closed_form(model: LatencyModel) -> None:
    # m tokens every 2 * 18 ms + 50 us * m, so m = rate * 36 ms / (1 - rate * 50 us).
    expected = 5000 * 0.036 / (1 - 5000 * 5e-5)
    assert model.prefill_for(5000.0, 100) == pytest.approx(expected, rel=0.02)
    assert model.prefill_for(30_000.0, 100) == math.inf


def test_the_mix_of_long_ago_is_forgotten_and_the_fit_is_not(model: LatencyModel) -> None:
    model.learn([], 3600.0)
    assert (model.recent, model.running_seen, model.prompt_tokens) == (0, 0.0, 0.0)
    assert model.stalls(-math.inf) == []
    assert model.step_s(40, 20.0) == pytest.approx(step_s(40, 20), rel=0.01)


@pytest.mark.parametrize("running", [0.0, -1.0, math.nan, math.inf])
def test_a_request_that_ran_beside_an_impossible_number_is_left_out(running: float) -> None:
    model = LatencyModel()
    model.learn([sample_of(running)], 0.0)
    assert (model.recent, model.fit.samples) == (0, 0)
