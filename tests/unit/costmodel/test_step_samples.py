"""Step samples: every step once, with what was in it."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.costmodel.load_curve import LoadCurve
from mileage.costmodel.served import ServedRequest
from mileage.costmodel.step_samples import interval_samples, observed_steps, step_samples
from tests.support.lockstep_engine import arrivals, serve


def answer(
    dispatched_s: float, times: tuple[float, ...], prompt: int = 100, cached: int | None = None
) -> ServedRequest:
    return ServedRequest(
        replica="engine",
        dispatched_s=dispatched_s,
        first_s=times[0],
        last_s=times[-1],
        prompt_tokens=prompt,
        output_tokens=len(times),
        cached_tokens=cached,
        token_times_s=times,
    )


def test_requests_that_decode_together_show_the_same_steps() -> None:
    served = [
        answer(0.0, (1.0, 1.1, 1.2, 1.3)),
        answer(1.05, (1.201, 1.301, 1.401, 1.501)),
    ]
    steps = observed_steps(served)
    assert [step.start_s for step in steps] == pytest.approx([1.0, 1.1, 1.2, 1.301, 1.401])
    assert [step.running for step in steps] == [1, 1, 2, 1, 1]
    # Of the second step: the prompt and two tokens of the first request.
    assert [step.kv_tokens for step in steps[:3]] == pytest.approx([101, 102, 103 + 101])


def test_the_engine_may_stand_idle_in_between() -> None:
    steps = observed_steps([answer(0.0, (1.0, 1.1)), answer(5.0, (6.0, 6.2, 6.3))])
    assert [step.end_s - step.start_s for step in steps] == pytest.approx([0.1, 0.2, 0.1])


def test_a_prompt_is_in_the_step_that_its_first_token_ends() -> None:
    served = [
        answer(0.0, (1.0, 1.1, 1.2, 2.0, 2.1)),
        answer(1.15, (2.001, 2.101), prompt=90, cached=40),
    ]
    samples = step_samples(served, observed_steps(served), 2048)
    assert [sample.prefill_tokens for sample in samples] == [0, 0, 50, 0]
    assert samples[2].step_s == pytest.approx(0.8)


def test_a_prompt_larger_than_a_step_fills_those_before() -> None:
    served = [
        answer(0.0, (1.0, 1.1, 1.2, 2.2, 2.4, 2.5)),
        answer(1.15, (2.4, 2.5), prompt=150),
    ]
    samples = step_samples(served, observed_steps(served), 101)
    assert [sample.prefill_tokens for sample in samples] == [0, 0, 100, 50, 0]


def test_two_prompts_share_a_step_in_order() -> None:
    served = [
        answer(0.0, (1.0, 1.1, 2.0, 2.5, 2.6)),
        answer(1.02, (2.0, 2.5, 2.6), prompt=60),
        answer(1.05, (2.5, 2.6), prompt=80),
    ]
    samples = step_samples(served, observed_steps(served), 101)
    # 100 beside the one that decodes, then what is left of the second prompt.
    assert [sample.prefill_tokens for sample in samples[:3]] == [0, 100, 40]


def test_all_of_every_prompt_is_somewhere() -> None:
    load = arrivals(60, 2.0, 3, prompt=(10, 300), output=(5, 40))
    first = (0.0, 10, 10_000)  # so that steps are always seen
    served = serve([first, *load], lambda n, kv, p: 0.01 + 0.001 * p, slots=64, step_tokens_max=128)
    steps = observed_steps(served)
    samples = step_samples(served, steps, 128)
    prompts = sum(each.computed_tokens for each in served[1:])
    assert sum(sample.prefill_tokens for sample in samples) == pytest.approx(prompts)
    for sample in samples:
        assert sample.step_s == pytest.approx(0.01 + 0.001 * sample.prefill_tokens)


def test_an_interval_is_the_mean_of_its_steps() -> None:
    served = [
        answer(0.0, (0.0, 1.0, 2.0, 3.0, 4.0)),
        answer(0.5, (2.0, 3.0, 4.0), prompt=50, cached=10),
    ]
    first, second = interval_samples(served)
    assert first.step_s == pytest.approx(1.0)
    assert first.running == pytest.approx(1.5)
    assert first.prefill_tokens == pytest.approx(10.0)
    assert second.running == pytest.approx(2.0)
    assert second.prefill_tokens == 0.0


def test_an_answer_in_one_piece_is_a_load_on_others() -> None:
    alone = answer(0.0, (1.0, 2.0, 3.0))
    silent = ServedRequest(
        replica="engine",
        dispatched_s=1.5,
        first_s=None,
        last_s=2.5,
        prompt_tokens=10,
        output_tokens=5,
    )
    curve = LoadCurve([alone, silent])
    start, end = np.array([1.0, 1.5, 0.0]), np.array([1.5, 2.5, 0.5])
    assert curve.running(start, end) == pytest.approx([1.0, 2.0, 0.0])
    assert observed_steps([silent]) == []
