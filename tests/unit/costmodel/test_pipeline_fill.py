"""Pipelines and data-parallel ranks: more requests at once, and none of them sooner."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.roofline import report

BATCH_TOKENS = 2048
LENGTHS = [1, 100, 500, 2048]


def deployment(stages: int = 1, ranks: int = 1, model: str = "llama-3.1-8b") -> Deployment:
    return Deployment(
        model=architecture(model),
        gpu=gpu("h100"),
        pipeline_parallel=stages,
        data_parallel=ranks,
    )


def lone_prompt_s(one: Deployment, prompt_tokens: int) -> float:
    """Until the first token of a request that is alone: the steps that its prompt takes, of which
    each has a batch in each stage, and the wait for the stages."""
    most = BATCH_TOKENS * one.pipeline_parallel
    table, fill = one.step_table(1, most), one.pipeline_fill(BATCH_TOKENS)
    took_s, before = 0.0, 0
    while before < prompt_tokens:
        chunk = min(prompt_tokens - before, most)
        took_s += table.step_s(0, 0, chunk, chunk * before + chunk * (chunk + 1) / 2)
        before += chunk
    return took_s + (0.0 if fill is None else fill.seconds(prompt_tokens))


@pytest.mark.parametrize("prompt_tokens", LENGTHS)
@pytest.mark.parametrize("stages", [2, 4])
def test_a_prompt_of_one_batch_passes_all_stages_in_turn(stages: int, prompt_tokens: int) -> None:
    one, many = lone_prompt_s(deployment(), prompt_tokens), deployment(stages)
    # As long as with one stage, and what the hidden states take between them.
    assert one <= lone_prompt_s(many, prompt_tokens) < 1.02 * one
    assert many.weight_bytes < deployment().weight_bytes / stages * 1.3, "a share of the weights"


@pytest.mark.parametrize(("stages", "batches"), [(2, 2), (2, 8), (4, 3), (4, 16)])
def test_batches_of_one_prompt_follow_each_other(stages: int, batches: int) -> None:
    """k batches in s stages take (k + s - 1) / s times as long as one batch in all of them."""
    prompt_tokens = batches * BATCH_TOKENS
    first_s = lone_prompt_s(deployment(), BATCH_TOKENS)
    whole_s = lone_prompt_s(deployment(), prompt_tokens)
    mean_s = whole_s / batches  # later chunks see longer contexts
    found = lone_prompt_s(deployment(stages), prompt_tokens)
    assert found == pytest.approx(mean_s * (batches + stages - 1) / stages, rel=0.25)
    assert first_s < found < whole_s


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("context", [100, 100_000])
def test_the_next_token_of_a_lone_request_comes_no_sooner(stages: int, context: int) -> None:
    one, many = deployment().step_table(4, 1), deployment(stages).step_table(4, 1)
    assert one.step_s(1, context) <= many.step_s(1, context) < 1.05 * one.step_s(1, context)


@pytest.mark.parametrize("stages", [2, 4])
def test_many_requests_are_served_faster(stages: int) -> None:
    one, many = deployment().step_table(256, 8192), deployment(stages).step_table(256, 8192)
    decode_s, prefill_s = (256, 256_000), (0, 0, 8192, 8192 * 500.0)
    assert many.step_s(*decode_s) < one.step_s(*decode_s) / 1.3
    assert many.step_s(*prefill_s) == pytest.approx(one.step_s(*prefill_s) / stages, rel=0.2)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(deployment(4), id="stages"),
        pytest.param(deployment(1, 4), id="ranks"),
        pytest.param(deployment(2, 2, "deepseek-v2-lite"), id="both, with experts"),
    ],
)
@pytest.mark.parametrize("requests", [1, 2, 3, 4, 9])
def test_tables_and_roofline_agree_on_steps_of_few_requests(one: Deployment, requests: int) -> None:
    found = report(one, batch=requests, context_tokens=5000)
    table = one.step_table(16, 16)
    assert table.step_s(requests, requests * 5000) == pytest.approx(found.step_s, rel=1e-6)


def test_contexts_of_few_requests_are_not_read_side_by_side() -> None:
    (line,) = deployment(4).step_table(8, 8).lines
    assert line.spread == 4
    assert [line.kv_token_s(n) / line.kv_s for n in (0, 1, 2, 4, 8)] == [4.0, 4.0, 2.0, 1.0, 1.0]


def test_what_was_found_in_the_cache_is_not_computed() -> None:
    fill = deployment(2).pipeline_fill(BATCH_TOKENS)
    assert fill is not None
    assert fill.seconds(2000, 1500) < fill.seconds(2000)
    assert fill.seconds(2000, 1500) > fill.seconds(500), "but its context is read"


def test_one_stage_is_no_pipeline() -> None:
    assert deployment(1, 4).pipeline_fill(BATCH_TOKENS) is None
    with pytest.raises(ConfigError, match="batch_tokens_max"):
        deployment(2).pipeline_fill(0)
