"""Step times and memory of any layout: more work never takes less, more GPUs never hold more."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture_table import ARCHITECTURES
from mileage.costmodel.catalogue import GPUS
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.roofline import report

REQUESTS, TOKENS = 40, 300


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    """Layouts that can be, whether they fit or not."""
    model = draw(st.sampled_from(ARCHITECTURES))
    tensor = draw(st.sampled_from([n for n in (1, 2, 4, 8) if model.heads % n == 0]))
    data = draw(st.sampled_from((1, 2, 4)))
    experts = draw(st.sampled_from((1, tensor, tensor * data))) if model.experts else 1
    return Deployment(
        model=model,
        gpu=draw(st.sampled_from(GPUS)),
        tensor_parallel=tensor,
        data_parallel=data,
        pipeline_parallel=draw(st.sampled_from((1, 1, 2))),
        expert_parallel=experts,
        weights=draw(st.sampled_from(("bf16", "fp8", "int8", "int4", "fp4"))),
        kv=draw(st.sampled_from(("bf16", "fp8"))),
        engine=draw(st.sampled_from(("vllm", "sglang", "trtllm"))),
    )


@settings(max_examples=60, deadline=None)
@given(
    deployments(),
    st.integers(0, REQUESTS),
    st.integers(0, TOKENS),
    st.integers(0, 5000),
)
def test_the_table_is_the_sum_of_the_operators(
    one: Deployment, batch: int, prefill: int, context: int
) -> None:
    assume(batch or prefill)
    context = max(context, prefill)
    found = report(one, batch=batch, context_tokens=context, prefill_tokens=prefill)
    assert sum(o.time_s for o in found.operators) == pytest.approx(found.step_s)
    assert all(o.time_s > 0 for o in found.operators)
    pairs = prefill * (context - prefill) + prefill * (prefill + 1) / 2
    table = one.step_table(REQUESTS, TOKENS)
    seconds = table.step_s(batch, batch * context, prefill, pairs)
    assert seconds == pytest.approx(found.step_s, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(deployments())
def test_more_requests_and_tokens_never_take_less_time(one: Deployment) -> None:
    (line,) = one.step_table(REQUESTS, TOKENS).lines
    assert list(line.decode_s) == sorted(line.decode_s)
    assert list(line.mixed_s) == sorted(line.mixed_s)
    assert min(line.kv_s, line.pair_s, line.decode_s[0], line.mixed_s[0]) > 0
    # A request's token in a step with prompts costs no less than a prompt's token does.
    table = one.step_table(REQUESTS, TOKENS)
    assert table.step_s(REQUESTS, 0, 100) >= table.step_s(REQUESTS - 1, 0, 100)


@settings(max_examples=60, deadline=None)
@given(deployments())
def test_more_gpus_never_hold_more_each(one: Deployment) -> None:
    twice = 2 * one.tensor_parallel
    assume(one.model.heads % twice == 0)
    wider = msgspec.structs.replace(one, tensor_parallel=twice)
    assert wider.weight_bytes <= one.weight_bytes
    assert wider.kv_rank_share <= one.kv_rank_share


@settings(max_examples=60, deadline=None)
@given(deployments(), st.integers(1, 64))
def test_blocks_fit_in_what_there_is_or_the_error_says_what_would_do(
    one: Deployment, block_tokens: int
) -> None:
    try:
        blocks = one.kv_blocks(block_tokens, TOKENS, REQUESTS)
    except ConfigError as error:
        problem = str(error)
    else:
        problem = ""
    if problem:
        assert "GB more" in problem
        assert "would do" in problem
        return
    layers = -(-one.model.full_layers // one.pipeline_parallel)
    of_token = layers * one.kv_bytes_per_token / one.model.layers * one.kv_rank_share
    used = blocks / one.data_parallel * block_tokens * of_token + one.weight_bytes
    assert 0 < used < one.gpu.memory_bytes * one.gpu_memory_utilization_ratio
