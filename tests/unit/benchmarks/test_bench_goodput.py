"""Goodput, its intervals, and the requests that it is counted from."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from benchmarks.support.calls import (
    Call,
    Mix,
    bursty_times,
    padded_text,
    poisson_times,
    text_of_words,
)
from benchmarks.support.goodput import Arm, Targets, bootstrap_ratio, light_targets
from benchmarks.support.step_answers import asked_of

TARGETS = Targets(ttft_s=1.0, itl_s=0.1, itl_mean_s=0.05)


def call(
    due_s: float = 0.0, first_s: float | None = 0.5, gaps: tuple[float, ...] = (), status: int = 200
) -> Call:
    made = Call(due_s, b"", 10, 1 + len(gaps), status=status, whole=True)
    if first_s is not None:
        times = [due_s + first_s]
        for gap in gaps:
            times.append(times[-1] + gap)
        made.first_s, made.end_s = times[0], times[-1]
        made.note_times(times)
    return made


@pytest.mark.parametrize(
    ("made", "by_mean", "met"),
    [
        pytest.param(call(), False, True, id="in time, one token"),
        pytest.param(call(gaps=(0.09, 0.09)), False, True, id="in time, all gaps"),
        pytest.param(call(gaps=(0.01, 0.11)), False, False, id="one gap too long"),
        pytest.param(call(gaps=(0.0, 0.09)), True, True, id="by the mean of its gaps"),
        pytest.param(call(gaps=(0.06, 0.06)), True, False, id="every gap a little too long"),
        pytest.param(call(first_s=1.01), False, False, id="the first token late"),
        pytest.param(call(status=503, first_s=None), False, False, id="rejected is missed"),
        pytest.param(call(first_s=None), False, False, id="no token"),
        pytest.param(
            Call(0.0, b"", 1, 1, status=200, first_s=0.1), False, False, id="not a whole answer"
        ),
    ],
)
def test_a_request_meets_all_targets_or_none(made: Call, by_mean: bool, met: bool) -> None:
    assert TARGETS.met(made, by_mean=by_mean) is met


def test_the_time_to_first_token_counts_from_when_a_request_was_due() -> None:
    late = Call(2.0, b"", 1, 1, sent_s=2.9, first_s=3.5)
    assert late.ttft_s == 1.5


def test_the_p99_of_fewer_than_a_hundred_gaps_is_the_longest() -> None:
    made = Call(0.0, b"", 1, 1)
    made.note_times([n * 0.01 for n in range(50)] + [2.0])
    assert made.itl_p99_s == pytest.approx(1.51)
    assert made.itl_mean_s == pytest.approx(2.0 / 50)


def test_targets_are_multiples_of_the_p95_under_light_load() -> None:
    calls = [call(first_s=n / 100, gaps=(n / 1000, n / 1000)) for n in range(1, 101)]
    found = light_targets(calls, 3.0)
    assert found.ttft_s == pytest.approx(3 * 0.95)
    assert found.itl_s == pytest.approx(3 * 0.095)
    with pytest.raises(ValueError, match="no request"):
        light_targets([call(status=503, first_s=None)], 3.0)


def test_an_arms_figures_count_rejected_requests_as_missed() -> None:
    arm = Arm("a")
    arm.add([call(), call(status=503, first_s=None)], 2.0)
    arm.add([call(first_s=3.0), call()], 2.0)
    figures = arm.figures(TARGETS)
    assert (figures["offered"], figures["completed"]) == (4, 3)
    assert (figures["rejected_ratio"], figures["goodput_per_s"]) == (0.25, 0.5)
    assert figures["ttft_p95_s"] == 3.0


def test_errors_are_told_apart_from_refusals_and_from_what_was_given_up() -> None:
    given_up = Call(0.0, b"", 1, 1, error="given up")
    refused = Call(0.0, b"", 1, 1, status=503, whole=True, error="the queue is full")
    broken = Call(0.0, b"", 1, 1, error="the connection was closed")
    arm = Arm("a")
    arm.add([given_up, refused, broken], 1.0)
    assert arm.errors() == ["a: no answer: the connection was closed"]


def arms(ours: list[bool], theirs: list[bool]) -> tuple[Arm, Arm]:
    made = []
    for name, outcomes in (("ours", ours), ("theirs", theirs)):
        arm = Arm(name)
        arm.add([call(first_s=0.5 if met else 5.0) for met in outcomes], 10.0)
        made.append(arm)
    return made[0], made[1]


def test_a_ratio_has_an_interval_round_it() -> None:
    rng = random.Random(3)
    ours = [rng.random() < 0.8 for _ in range(1000)]
    theirs = [rng.random() < 0.4 for _ in range(1000)]
    found = bootstrap_ratio(*arms(ours, theirs), TARGETS)
    assert found.value == pytest.approx(sum(ours) / sum(theirs))
    assert 1.7 < found.low < found.value < found.high < 2.4


def test_the_same_fate_in_both_arms_gives_a_narrow_interval() -> None:
    # Whole stretches are good or bad: drawn one by one, or apart, they would spread the ratio.
    fate = [n // 100 % 2 == 0 for n in range(1000)]
    found = bootstrap_ratio(*arms(fate, fate), TARGETS)
    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


def test_where_none_of_theirs_was_good_the_ratio_is_what_it_is_at_least() -> None:
    found = bootstrap_ratio(*arms([True] * 30, [False] * 30), TARGETS)
    assert found.value == 30.0


def test_prompts_have_the_tokens_that_were_drawn() -> None:
    mix = Mix(model="steps", prompt_tokens=(9, 300), output_tokens=(2, 5), tag="a", key="k")
    for made in mix.calls(1, [0.0] * 50):
        asked = asked_of(made.request.partition(b"\r\n\r\n")[2])
        assert asked.prompt_tokens(4.0) == made.prompt_tokens
        assert asked.output_tokens == made.output_tokens
        assert asked.orders() == {"tag": "a"}
        assert b"Authorization: Bearer k" in made.request


def test_a_prompt_cannot_be_shorter_than_its_frame() -> None:
    with pytest.raises(ValueError, match="at least 9"):
        padded_text(random.Random(1), 8)


def test_words_make_prompts_for_engines_that_read() -> None:
    mix = Mix(model="m", prompt_tokens=(5, 5), output_tokens=(3, 3), words=True, stream=False)
    body = json.loads(mix.call(random.Random(1)).request.partition(b"\r\n\r\n")[2])
    assert len(body["messages"][0]["content"].split()) == 5
    assert body["ignore_eos"] is True
    assert "stream" not in body
    assert text_of_words(random.Random(2), 0) == ""


def test_the_same_seed_gives_the_same_requests_and_times() -> None:
    mix = Mix(model="m", prompt_tokens=(10, 50), output_tokens=(3, 9))
    assert mix.calls(5, poisson_times(5, 20.0, 5.0)) == mix.calls(5, poisson_times(5, 20.0, 5.0))
    assert poisson_times(5, 20.0, 5.0) != poisson_times(6, 20.0, 5.0)


@pytest.mark.parametrize("variation", [1.0, 3.0])
def test_arrivals_have_their_rate_and_their_variation(variation: float) -> None:
    times = bursty_times(7, 50.0, 2000.0, variation=variation)
    gaps = [b - a for a, b in pairwise(times)]
    assert len(times) / 2000.0 == pytest.approx(50.0, rel=0.05)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(variation, rel=0.1)
