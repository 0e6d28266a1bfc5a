"""What a prompt token takes of an engine: learned from requests with known step times."""

from __future__ import annotations

from random import Random

import pytest

from mileage.control.prefill_cost import PrefillCost, blended
from mileage.policy.limits.limit import RequestSample

BASE_S, DECODE_S, PREFILL_S = 0.0002, 0.001, 0.0001
CONTEXT_PER_PROMPT_TOKEN = 9.0


def answered(
    random: Random,
    prefilled: float,
    *,
    decoding: float = 14.0,
    prompt_tokens: float = 300.0,
    output_tokens: int = 40,
    error_tokens: float = 0.0,
    stream: bool = True,
    prefill_s: float = PREFILL_S,
) -> RequestSample:
    """A request during which so many prompt tokens were computed per step; what is counted of them
    is off by some at both ends."""
    steps = output_tokens - stream
    off = random.uniform(-error_tokens, error_tokens) / steps
    return RequestSample(
        prompt_tokens=int(prompt_tokens),
        output_tokens=output_tokens,
        stream=stream,
        ttft_s=0.1 if stream else None,
        service_ttft_s=0.1 if stream else None,
        itl_p99_s=None,
        step_s=BASE_S + DECODE_S * decoding + prefill_s * prefilled,
        running_mean=decoding + 1.0,
        kv_tokens_mean=CONTEXT_PER_PROMPT_TOKEN * prefilled,
        prefill_tokens_per_step=prefilled + off,
        decoding_mean=decoding,
        prefill_tokens=prompt_tokens,
    )


def drifting(
    random: Random, count: int, *, decoding: float = 14.0, spread: float = 0.3, **fields: float
) -> list[RequestSample]:
    """Requests of an engine whose share of prompts drifts slowly about the one that fits them:
    as many prompt tokens per step as come with the tokens decoded in it."""
    samples, drift = [], 0.0
    for _ in range(count):
        drift += 0.2 * (random.gauss(0.0, spread) - drift)
        prefilled = decoding * 300.0 / 39.0 * max(0.1, 1.0 + drift)
        samples.append(answered(random, prefilled, decoding=decoding, **fields))  # type: ignore[arg-type]
    return samples


def learned(samples: list[RequestSample]) -> float | None:
    cost = PrefillCost()
    for at in range(0, len(samples), 20):
        cost.learn(samples[at : at + 20])
    return cost.value


def true_cost(decoding: float = 14.0) -> float:
    """A prompt token over a decode with its part of the step's constant time."""
    return PREFILL_S / (DECODE_S + BASE_S / decoding)


def test_a_prompt_token_is_worth_what_it_takes_by_the_step_time() -> None:
    assert learned(drifting(Random(1), 600)) == pytest.approx(true_cost(), rel=0.08)


def test_context_that_comes_with_the_prompts_takes_nothing_away_from_them() -> None:
    """Context rises and falls with prompts exactly: what it would explain is not told apart."""
    samples = drifting(Random(2), 600)
    ratios = [s.kv_tokens_mean / s.prefill_tokens_per_step for s in samples]
    assert max(ratios) == pytest.approx(min(ratios))
    assert learned(samples) == pytest.approx(true_cost(), rel=0.08)


def test_prompts_half_done_at_both_ends_do_not_make_prompts_seem_cheaper() -> None:
    """By least squares the slope would be far too flat."""
    random = Random(3)
    samples = drifting(random, 4000, spread=0.1, error_tokens=600.0)
    xs = [s.prefill_tokens_per_step for s in samples]
    ys = [s.step_s or 0.0 for s in samples]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    flat = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - mean_x) ** 2 for x in xs
    )
    assert flat < 0.6 * PREFILL_S
    assert learned(samples) == pytest.approx(true_cost(), rel=0.1)


def test_the_number_that_decode_is_told_apart_from_prompts() -> None:
    random, samples = Random(4), []
    for batch in range(48):
        decoding, factor = 4.0 + batch % 4 * 8.0, (0.4, 1.0, 1.6)[batch % 3]
        prefilled = factor * decoding * 300.0 / 39.0
        samples += [answered(random, prefilled, decoding=decoding) for _ in range(25)]
    # Over all, a decode's part of the constant time is that of the mean load.
    assert learned(samples) == pytest.approx(true_cost(16.0), rel=0.1)


def test_nothing_is_said_where_prompts_and_decodes_only_rise_and_fall_together() -> None:
    """One mix at every load: whichever takes the time cannot be told."""
    random, samples = Random(12), []
    for batch in range(40):
        samples += drifting(random, 25, decoding=4.0 + batch % 4 * 8.0, spread=0.05)
    assert learned(samples) is None


def test_nothing_is_said_before_enough_was_seen() -> None:
    samples = drifting(Random(5), 120)
    assert learned(samples[:100]) is None
    assert learned([]) is None


def test_nothing_is_said_where_all_requests_saw_the_same() -> None:
    random = Random(6)
    assert learned([answered(random, 100.0) for _ in range(500)]) is None


def test_prompts_that_take_nothing_are_not_given_a_cost() -> None:
    random = Random(7)
    samples = [answered(random, 100.0 * random.random(), prefill_s=0.0) for _ in range(500)]
    assert learned(samples) is None


def test_the_cohort_sent_first_teaches_nothing() -> None:
    """They waited for prompts that were counted before theirs: those look four times as dear."""
    random = Random(8)
    first = [answered(random, 400.0 * random.random(), prefill_s=4 * PREFILL_S) for _ in range(60)]
    assert learned([*first, *drifting(random, 600)]) == pytest.approx(true_cost(), rel=0.08)


def test_prompts_count_in_the_measure_in_which_they_were_told() -> None:
    """Estimated prompt tokens twice the true ones: each is worth half."""
    samples = drifting(Random(9), 600)
    doubled = [
        RequestSample(
            **{name: getattr(s, name) for name in s.__struct_fields__}
            | {
                "prefill_tokens": 2 * s.prefill_tokens,
                "prefill_tokens_per_step": 2 * s.prefill_tokens_per_step,
            }
        )
        for s in samples
    ]
    one, half = learned(samples), learned(doubled)
    assert one is not None
    assert half == pytest.approx(one / 2)


def test_replicas_blend_what_they_learned() -> None:
    cost = 0.2
    for fits, fitted in enumerate([0.1, 0.08, 0.12]):
        cost = blended(cost, fitted, fits)
    assert cost == pytest.approx(0.1)
    assert blended(0.1, 0.2, 1000) == pytest.approx(0.11)
