"""Whatever the model and the GPU: stages and ranks serve no single request sooner."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment

_BATCH_TOKENS = 512
_ROUNDING = 1.0 - 1e-9

deployments = st.builds(
    lambda model, card, tensor: Deployment(
        model=architecture(model), gpu=gpu(card), tensor_parallel=tensor
    ),
    st.sampled_from(("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b")),
    st.sampled_from(("h100", "h20", "a10", "l40s")),
    st.sampled_from((1, 2)),
)
widths = st.sampled_from((2, 3, 4))


def first_token_s(one: Deployment, prompt_tokens: int) -> float:
    """Of a request that is alone, whose prompt fits into one batch."""
    table = one.step_table(1, _BATCH_TOKENS * one.pipeline_parallel)
    pairs = prompt_tokens * (prompt_tokens + 1) / 2
    fill = one.pipeline_fill(_BATCH_TOKENS)
    waits_s = 0.0 if fill is None else fill.seconds(prompt_tokens)
    return table.step_s(0, 0, prompt_tokens, pairs) + waits_s


@settings(deadline=None, max_examples=25)
@given(one=deployments, stages=widths, prompt_tokens=st.integers(1, _BATCH_TOKENS))
def test_stages_bring_no_first_token_sooner(
    one: Deployment, stages: int, prompt_tokens: int
) -> None:
    many = replace(one, pipeline_parallel=stages)
    assert first_token_s(many, prompt_tokens) >= first_token_s(one, prompt_tokens) * _ROUNDING


@settings(deadline=None, max_examples=25)
@given(one=deployments, stages=widths, ranks=widths, context=st.integers(1, 100_000))
def test_neither_brings_the_next_token_of_a_lone_request_sooner(
    one: Deployment, stages: int, ranks: int, context: int
) -> None:
    alone_s = one.step_table(8, 1).step_s(1, context)
    for other in (replace(one, pipeline_parallel=stages), replace(one, data_parallel=ranks)):
        if other.model.experts and other.data_parallel > 1:
            continue  # experts are cut among more GPUs: that is what ranks share
        assert other.step_table(8, 1).step_s(1, context) >= alone_s * _ROUNDING


@settings(deadline=None, max_examples=25)
@given(one=deployments, stages=widths, context=st.integers(1, 4_000))
def test_many_requests_take_no_longer_with_more_stages(
    one: Deployment, stages: int, context: int
) -> None:
    requests = 60 * stages
    many = replace(one, pipeline_parallel=stages)
    few_s = one.step_table(requests, 1, ()).step_s(requests, requests * context)
    # But for what their hidden states take between stages, over PCIe in some machines.
    sends_s = stages * 2e-3
    assert many.step_table(requests, 1, ()).step_s(requests, requests * context) <= few_s + sends_s


@settings(deadline=None, max_examples=25)
@given(one=deployments, stages=widths, prompt_tokens=st.integers(1, 20_000))
def test_the_wait_for_stages_is_never_negative_and_sees_the_context(
    one: Deployment, stages: int, prompt_tokens: int
) -> None:
    fill = replace(one, pipeline_parallel=stages).pipeline_fill(_BATCH_TOKENS)
    assert fill is not None
    assert fill.seconds(prompt_tokens) >= 0.0
    cached = prompt_tokens // 2
    assert fill.seconds(prompt_tokens, cached) >= fill.seconds(prompt_tokens - cached) * _ROUNDING
