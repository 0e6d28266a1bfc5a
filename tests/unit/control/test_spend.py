"""What requests may cost at most, and what they did cost."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.control.config import CostsConfig, TokenPrice
from mileage.control.spend import Prices, Spend, SpendEstimator
from mileage.core.request import Request
from mileage.policy.load import work_of
from tests.support.controllers import request

GPU_COSTS = CostsConfig(usd_per_gpu_hour=3.6)
TOKEN_COSTS = CostsConfig(
    models={
        "llama": TokenPrice(
            prompt_usd_per_mtok=0.0375, output_usd_per_mtok=2.0, cached_usd_per_mtok=0.01
        )
    }
)


def ask(**fields: Any) -> Request:
    return request(1, **fields)


def taught(
    *answers: tuple[int, int], costs: CostsConfig = GPU_COSTS, gpu_ns_per_work: int = 1000
) -> SpendEstimator:
    """An estimator that has seen requests with so many prompt and output tokens."""
    estimator = SpendEstimator(costs)
    for prompt_tokens, output_tokens in answers:
        gpu_ns = round(work_of(prompt_tokens, output_tokens) * gpu_ns_per_work)
        estimator.actual(
            ask(), gpu_ns=gpu_ns, prompt_tokens=prompt_tokens, output_tokens=output_tokens
        )
    return estimator


def test_gpu_time_is_priced_by_the_hour() -> None:
    # 3.6 USD per hour are 0.001 USD per second.
    prices = Prices(GPU_COSTS)
    cost = prices.nano_usd("m", gpu_ns=2_000_000_000, prompt_tokens=5, output_tokens=5)
    assert cost == 2_000_000


def test_a_models_own_token_prices_come_first() -> None:
    prices = Prices(TOKEN_COSTS)
    cost = prices.nano_usd(
        "llama", gpu_ns=10**12, prompt_tokens=100, cached_tokens=40, output_tokens=10
    )
    # 60 x 37.5 + 40 x 10 + 10 x 2000 nano-USD.
    assert cost == 2250 + 400 + 20_000


def test_without_any_price_nobody_can_tell() -> None:
    assert Prices(TOKEN_COSTS).nano_usd("m", gpu_ns=1, prompt_tokens=1, output_tokens=1) is None
    assert Spend(1, 2, None).of("usd") == 0


@pytest.mark.parametrize(
    ("fields", "most", "likely"),
    [
        pytest.param(
            {"prompt_tokens_estimate": 10, "prompt_tokens_max": 40, "output_tokens_max": 20},
            40 + 64 + 20,
            26 + 20,
            id="a prompt's bytes, a template, and the client's bound of the answer",
        ),
        pytest.param(
            {"prompt_tokens_estimate": 10, "output_tokens_max": 20},
            40 + 64 + 20,
            26 + 20,
            id="bytes that are not known are four per token",
        ),
        pytest.param(
            {"prompt_tokens_estimate": 10, "output_tokens_max": 1000, "choices": 3},
            40 + 64 + 3000,
            26 + 3 * 256,
            id="every choice is another answer, the prompt is one",
        ),
        pytest.param(
            {"prompt_tokens_estimate": 10},
            40 + 64 + 4096,
            26 + 256,
            id="no bound, and no answer seen yet",
        ),
        pytest.param(
            {"prompt_tokens_estimate": 10, "endpoint": "embeddings", "output_tokens_max": 9},
            40 + 64,
            26,
            id="embeddings have no output",
        ),
        pytest.param(
            {"prompt_tokens_estimate": 0, "image_patches": 100, "audio_frames": 10},
            440 + 64 + 4096,
            126 + 256,
            id="images and audio count",
        ),
    ],
)
def test_before_anything_was_seen_the_worst_is_assumed_and_the_usual_guessed(
    fields: dict[str, Any], most: int, likely: int
) -> None:
    estimate = SpendEstimator(GPU_COSTS).estimate(ask(**fields))
    assert (estimate.most.tokens, estimate.likely.tokens) == (most, likely)
    assert estimate.most.gpu_ns >= 5 * estimate.likely.gpu_ns > 0


def test_what_was_seen_makes_the_likely_cost_tight_and_keeps_the_bound() -> None:
    estimator = taught(*[(90, 20)] * 10)
    bounded = estimator.estimate(ask(prompt_tokens_max=400, output_tokens_max=500))
    assert bounded.likely.tokens == 90 + 20
    assert bounded.most.tokens == 400 + 64 + 500
    unbounded = estimator.estimate(ask(prompt_tokens_max=400))
    assert unbounded.most.tokens == 400 + 64 + 30


def test_the_likely_cost_is_the_highest_seen_lately() -> None:
    estimator = taught(*[(90, 20)] * 50, (90, 80), *[(90, 20)] * 100)
    assert estimator.estimate(ask()).likely.tokens == 90 + 80
    forgetful = taught((90, 80), *[(90, 20)] * 300)
    assert forgetful.estimate(ask()).likely.tokens == 90 + 20


def test_a_model_with_a_long_template_raises_the_bound() -> None:
    estimator = taught(*[(1000, 20)] * 10)
    estimate = estimator.estimate(ask(prompt_tokens_max=400, output_tokens_max=20))
    assert estimate.most.tokens == estimate.likely.tokens == 1000 + 20


COUNTED = {
    "prompt_tokens_estimate": 39_000,
    "prompt_tokens_max": 40_000,
    "prompt_counted": True,
    "output_tokens_max": 50,
}


def learned(estimator: SpendEstimator, prompt_tokens: int, **fields: Any) -> None:
    estimator.actual(ask(**fields), gpu_ns=1000, prompt_tokens=prompt_tokens, output_tokens=1)


def test_how_far_estimates_are_off_says_nothing_of_counts() -> None:
    estimator = SpendEstimator(GPU_COSTS)
    for _ in range(8):  # digits, a token each
        learned(estimator, 3900, prompt_tokens_estimate=1000, prompt_tokens_max=4000)
    counted = estimator.estimate(ask(**COUNTED))
    assert counted.most.tokens == 40_000 + 64 + 50
    assert counted.likely.tokens == 39_000 + 16 + 1
    for _ in range(8):
        learned(estimator, 39_016, **COUNTED)
    estimated = estimator.estimate(ask(prompt_tokens_estimate=1000, output_tokens_max=50))
    assert estimated.likely.tokens == 3900 + 1


def test_a_count_that_missed_most_of_its_prompt_moves_no_bound_above_the_bytes() -> None:
    estimator = SpendEstimator(GPU_COSTS)
    for _ in range(8):
        learned(estimator, 2016, prompt_tokens_estimate=2000, prompt_counted=True)
    learned(
        estimator,
        25_000,
        prompt_tokens_estimate=3,
        prompt_tokens_max=100_240,
        prompt_counted=True,
    )
    counted = estimator.estimate(
        ask(
            prompt_tokens_estimate=2000,
            prompt_tokens_max=8000,
            prompt_counted=True,
            output_tokens_max=50,
        )
    )
    assert counted.most.tokens == 8000 + 64 + 50
    assert counted.likely.tokens <= counted.most.tokens
    estimated = estimator.estimate(ask(prompt_tokens_max=400, output_tokens_max=50))
    assert estimated.most.tokens == 400 + 64 + 50


def test_what_a_model_adds_to_counted_prompts_is_learned() -> None:
    estimator = SpendEstimator(GPU_COSTS)
    fields: dict[str, Any] = {
        "prompt_tokens_estimate": 1984,
        "prompt_tokens_max": 8000,
        "prompt_counted": True,
    }
    for _ in range(8):
        learned(estimator, 2200, **fields)
    estimate = estimator.estimate(ask(output_tokens_max=50, **fields))
    assert estimate.likely.tokens == 2200 + 1


def test_gpu_time_is_learned_per_unit_of_work_with_a_margin() -> None:
    estimator = taught(*[(90, 20)] * 10, gpu_ns_per_work=1000)
    estimate = estimator.estimate(ask(output_tokens_max=20))
    assert estimate.likely.gpu_ns == pytest.approx(1000 * work_of(90, 20), rel=0.01)
    most = work_of(400 + 64, 20)
    assert estimate.most.gpu_ns == pytest.approx(1.5 * 1000 * most, rel=0.01)
    assert estimate.most.nano_usd == pytest.approx(estimate.most.gpu_ns / 1000, rel=0.01)


def test_models_are_learned_apart() -> None:
    estimator = taught(*[(90, 20)] * 10)
    assert estimator.estimate(ask(model="other")).most.tokens > 4096


def test_what_the_engine_counted_is_what_it_cost() -> None:
    estimator = SpendEstimator(GPU_COSTS)
    spent = estimator.actual(ask(), gpu_ns=5_000_000, prompt_tokens=100, output_tokens=7)
    assert spent == Spend(107, 5_000_000, 5000)


def test_embeddings_without_an_output_count_are_counted() -> None:
    spent = SpendEstimator(GPU_COSTS).actual(
        ask(endpoint="embeddings"), gpu_ns=1, prompt_tokens=100, output_tokens=None
    )
    assert spent.tokens == 100


@pytest.mark.parametrize(
    ("gpu_ns", "low", "high"),
    [
        pytest.param(0, 0, 0, id="an error at once costs nothing"),
        pytest.param(1000 * 20, 88, 90 + 2, id="the prompt was read"),
        pytest.param(1000 * 69, 135, 145, id="half of the answer was made"),
        pytest.param(10**12, 590, 590, id="never more than the bounds"),
    ],
)
def test_an_answer_that_nobody_counted_costs_what_its_gpu_time_tells(
    gpu_ns: int, low: int, high: int
) -> None:
    estimator = taught(*[(90, 20)] * 10, gpu_ns_per_work=1000)
    spent = estimator.actual(
        ask(output_tokens_max=500), gpu_ns=gpu_ns, prompt_tokens=None, output_tokens=None
    )
    assert low <= spent.tokens <= high
    assert spent.gpu_ns == gpu_ns


def test_an_engine_that_never_counts_is_not_free() -> None:
    spent = SpendEstimator(CostsConfig()).actual(
        ask(output_tokens_max=50), gpu_ns=2_000_000_000, prompt_tokens=None, output_tokens=None
    )
    assert spent.tokens > 100


def test_a_stream_that_was_cut_costs_its_prompt_and_what_was_seen_of_it() -> None:
    estimator = taught(*[(90, 20)] * 10)
    spent = estimator.actual(
        ask(output_tokens_max=400), gpu_ns=60_000_000_000, prompt_tokens=None, output_tokens=127
    )
    assert spent.tokens == 90 + 127


def test_a_reload_changes_prices_and_keeps_what_was_learned() -> None:
    estimator = taught(*[(90, 20)] * 10)
    estimator.reconfigure(CostsConfig(usd_per_gpu_hour=7.2))
    spent = estimator.actual(ask(), gpu_ns=5_000_000, prompt_tokens=90, output_tokens=7)
    assert spent.nano_usd == 10_000
    assert estimator.estimate(ask(output_tokens_max=20)).likely.tokens == 90 + 20


def test_nonsense_counts_are_no_credit() -> None:
    spent = SpendEstimator(GPU_COSTS).actual(
        ask(), gpu_ns=0, prompt_tokens=-100, output_tokens=-7, cached_tokens=10**9
    )
    assert spent == Spend(0, 0, 0)
