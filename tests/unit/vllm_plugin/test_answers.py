"""What is kept of the requests that decode: gaps that are spared, and samples of those that end."""

from __future__ import annotations

import pytest

from mileage.vllm_plugin.answers import Answers, Step
from tests.support.toy_scheduler import ToyRequest

TARGET_S = 0.05


def decoding(name: str = "a", output: int = 400) -> ToyRequest:
    """One whose first token has just come."""
    request = ToyRequest(name, 100, output, arrived_s=-1.0)
    request.num_output_tokens = 1
    return request


def take(answers: Answers, *times_s: float, begun: tuple[str, ...] = ()) -> None:
    """Steps that took so long, with one request that decodes beside another's prompt."""
    for took_s in times_s:
        step = Step(0.0, took_s, running=2, decoding=1, kv_tokens=100, prefill_tokens=50)
        answers.took(step, begun, -0.5)


def test_one_gap_in_a_hundred_is_forgiven() -> None:
    answers, request = Answers(TARGET_S), decoding()
    take(answers, 1.0)
    answers.observe([request], {"a": request}, 0.0)
    assert answers.spare_gaps([request]) == [0]
    take(answers, *[0.01] * 99)
    assert answers.spare_gaps([request]) == [1]
    take(answers, 0.06)
    assert answers.spare_gaps([request]) == [0]
    take(answers, *[0.01] * 100)
    assert answers.spare_gaps([request]) == [1]
    assert answers.past([request], 3.0) == [(200, 3.0)]


def test_a_sample_of_a_request_that_ended_well() -> None:
    answers, request = Answers(TARGET_S), decoding(output=5)
    take(answers, 0.2, begun=("a",))
    answers.observe([request], {"a": request}, 0.0)
    take(answers, 0.01, 0.03, 0.01, 0.01)
    request.num_output_tokens = 5
    request.status.name = "FINISHED_STOPPED"
    answers.observe([], {}, 0.0)
    (sample,) = answers.samples()
    assert answers.samples() == ()
    assert (sample.prompt_tokens, sample.output_tokens) == (100, 5)
    assert (sample.ttft_s, sample.service_ttft_s) == (1.0, 0.5)
    assert sample.step_s == pytest.approx(0.015)
    assert sample.itl_p99_s == 0.03
    assert (sample.running_mean, sample.decoding_mean) == (2.0, 1.0)
    assert (sample.kv_tokens_mean, sample.prefill_tokens_per_step) == (100.0, 50.0)


@pytest.mark.parametrize("status", ["FINISHED_ABORTED", "FINISHED_ERROR", "PREEMPTED"])
def test_one_that_ended_badly_is_no_sample(status: str) -> None:
    answers, request = Answers(None), decoding()
    take(answers, 0.01)
    answers.observe([request], {"a": request}, 0.0)
    take(answers, 0.01)
    request.num_output_tokens = 2
    request.status.name = status
    answers.observe([], {}, 0.0)
    assert answers.samples() == ()


def test_one_that_is_preempted_is_still_the_same() -> None:
    answers, request = Answers(None), decoding()
    take(answers, 0.01)
    answers.observe([request], {"a": request}, 0.0)
    take(answers, 0.01, 0.01)
    answers.observe([], {"a": request}, 0.0)  # it waits again
    answers.observe([request], {"a": request}, 0.0)
    assert answers.past([request], 1.0) == [(2, 1.0)]


def test_long_answers_and_many_starts_stay_bounded() -> None:
    answers, request = Answers(TARGET_S), decoding(output=100_000)
    take(answers, 0.01)
    answers.observe([request], {"a": request}, 0.0)
    for number in range(5000):
        take(answers, 0.06 if number % 2 else 0.01, begun=(f"r{number}",))
    answers.observe([request], {"a": request}, 0.0)
    take(answers, *[0.06] * 60_000)
    assert answers.steps == 65_001
    assert answers.past([request], 1.0) == [(65_000, 1.0)]
    assert answers.spare_gaps([request])[0] < 0
    request.num_output_tokens = 65_001
    request.status.name = "FINISHED_LENGTH_CAPPED"
    answers.observe([], {}, 0.0)
    (sample,) = answers.samples()
    assert sample.itl_p99_s == 0.06
