"""Deployment: memory, step tables and the roofline report, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time
from typing import Any

import msgspec
import numpy as np
import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.efficiency_table import FITTED
from mileage.costmodel.roofline import report
from mileage.costmodel.step_tables import GRAPH_SIZES, padded


def deployment(model: str = "llama-3.1-8b", card: str = "a10", **settings: Any) -> Deployment:
    return Deployment(model=architecture(model), gpu=gpu(card), **settings)


PAIRINGS = [
    pytest.param(deployment(), 256, 2048, id="Llama-3.1-8B on an A10"),
    pytest.param(deployment("qwen3-32b", "a100-80gb"), 256, 2048, id="Qwen3-32B on an A100"),
    pytest.param(
        deployment("llama-3.1-70b", "h100", tensor_parallel=4, weights="fp8"),
        256,
        8192,
        id="Llama-3.1-70B in FP8 on four H100",
    ),
    pytest.param(
        deployment("deepseek-v3", "h20", tensor_parallel=8, weights="fp8"),
        256,
        8192,
        id="DeepSeek-V3 in FP8 on eight H20",
    ),
    pytest.param(
        deployment(
            "deepseek-v3", "h200", data_parallel=8, expert_parallel=8, weights="fp8", kv="fp8"
        ),
        512,
        8192,
        id="DeepSeek-V3 with data-parallel attention",
    ),
    pytest.param(
        deployment("gpt-oss-120b", "h100", weights="fp4"), 256, 8192, id="windows and experts"
    ),
    pytest.param(
        deployment("llama-3.1-70b", "a100", tensor_parallel=2, pipeline_parallel=2),
        128,
        2048,
        id="two pipeline stages",
    ),
]


def test_weights_are_two_bytes_each_in_half_precision() -> None:
    assert deployment().weight_bytes == pytest.approx(2 * 8.03e9, rel=1e-3)


def test_weights_are_shared_out_by_tensor_parallelism() -> None:
    whole = deployment("llama-3.1-70b", "h100", weights="fp8").weight_bytes
    quarter = deployment("llama-3.1-70b", "h100", weights="fp8", tensor_parallel=4).weight_bytes
    assert quarter == pytest.approx(whole / 4, rel=1e-6)


def test_kv_cache_of_a_token_is_known() -> None:
    assert deployment().kv_bytes_per_token == 131_072  # 32 layers, 2 x 8 heads x 128, 2 bytes
    assert deployment("deepseek-v3", "h20").kv_bytes_per_token == 61 * 576 * 2
    eighth = deployment("deepseek-v3", "h20", tensor_parallel=8)
    assert eighth.kv_rank_share == 1.0  # the latent vector is on every GPU
    assert deployment("llama-3.1-8b", "h100", tensor_parallel=16).kv_rank_share == 1 / 8


def test_blocks_are_what_memory_leaves() -> None:
    one = deployment()
    blocks = one.kv_blocks(16, 2048, 256)
    # 23028 MiB, nine tenths; weights, context, and a step's activations are about 18 GB of it.
    assert 28_000 < blocks * 16 < 38_000
    assert abs(one.kv_blocks(32, 2048, 256) * 2 - blocks) <= 2
    half = msgspec.structs.replace(one, kv="fp8").kv_blocks(16, 2048, 256)
    assert abs(half - 2 * blocks) <= 1
    assert one.kv_blocks(16, 8192, 256) < blocks


def test_a_mix_of_formats_counts_by_its_mean_bits() -> None:
    one = deployment()
    blocks = one.kv_blocks(16, 2048, 256)
    mixed = msgspec.structs.replace(one, kv_bits=4.75)
    assert abs(mixed.kv_blocks(16, 2048, 256) - blocks * 16 / 4.75) <= 16 / 4.75
    assert mixed.kv_bytes_per_token == pytest.approx(131_072 * 4.75 / 16)
    alike = one.step_table(64, 2048)
    assert msgspec.structs.replace(one, kv_bits=16.0).step_table(64, 2048) == alike
    assert mixed.step_table(64, 2048).step_s(64, 200_000) < alike.step_s(64, 200_000)


def test_each_data_parallel_rank_has_its_own_blocks() -> None:
    ranks = deployment(
        "deepseek-v3", "h200", data_parallel=8, expert_parallel=8, weights="fp8"
    ).kv_blocks(16, 8192, 256)
    assert ranks % 8 == 0


def test_a_model_that_does_not_fit_is_told_what_is_missing_and_what_would_do() -> None:
    with pytest.raises(
        ConfigError,
        match=r"tensor_parallel: .* GB more each .*: tensor_parallel=8 or B200-SXM-180GB would do",
    ):
        deployment("llama-3.1-70b", "a10").kv_blocks(16, 2048, 256)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        pytest.param({"tensor_parallel": 3}, "tensor_parallel", id="heads do not divide"),
        pytest.param({"kv_bits": 0.5}, "kv_bits", id="less than a bit"),
        pytest.param({"kv_bits": float("nan")}, "kv_bits", id="no bits"),
        pytest.param({"expert_parallel": 2}, "expert_parallel", id="no experts"),
        pytest.param({"pipeline_parallel": 99}, "pipeline_parallel", id="fewer layers"),
        pytest.param({"interconnect": "nvlink"}, "interconnect", id="an A10 has no NVLink"),
        pytest.param(
            {"gpu_memory_utilization_ratio": 1.5}, "gpu_memory_utilization_ratio", id="too much"
        ),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        deployment(**settings)


def test_a_small_batch_takes_as_long_as_reading_the_weights() -> None:
    """8 billion weights of two bytes at 600 GB/s are 27 ms; engines reach some 80-95 % of it."""
    assert 0.027 < deployment().step_table(8, 8).step_s(1, 100) < 0.036


def test_a_long_prompt_takes_as_long_as_computing_it() -> None:
    """2048 tokens are 33 TFLOP (without attention and embedding): 0.25 s at 125 TFLOPS."""
    table = deployment().step_table(8, 2048)
    assert 0.25 < table.step_s(0, 0, 2048, 2048 * 2049 / 2) < 0.5


@pytest.mark.parametrize(("one", "requests", "tokens"), PAIRINGS)
def test_the_table_is_what_the_report_adds_up_to(
    one: Deployment, requests: int, tokens: int
) -> None:
    table = one.step_table(requests, tokens)
    for batch in (1, 7, 100, requests):
        found = report(one, batch=batch, context_tokens=1500)
        assert sum(o.time_s for o in found.operators) == pytest.approx(found.step_s)
        assert table.step_s(batch, batch * 1500) == pytest.approx(found.step_s, rel=1e-9)
    for batch in (0, 5, requests):
        found = report(one, batch=batch, context_tokens=3000, prefill_tokens=1000)
        pairs = 1000 * 2000 + 1000 * 1001 / 2
        seconds = table.step_s(batch, batch * 3000, 1000, pairs)
        assert seconds == pytest.approx(found.step_s, rel=1e-6)


@pytest.mark.parametrize(("one", "requests", "tokens"), PAIRINGS)
def test_more_work_never_takes_less_time(one: Deployment, requests: int, tokens: int) -> None:
    (line,) = one.step_table(requests, tokens, graph_sizes=()).lines
    assert all(a <= b for a, b in zip(line.decode_s, line.decode_s[1:], strict=False))
    assert all(a <= b for a, b in zip(line.mixed_s, line.mixed_s[1:], strict=False))
    assert line.kv_s > 0
    assert line.pair_s > 0


@pytest.mark.parametrize(("one", "requests", "tokens"), PAIRINGS)
def test_a_table_is_quickly_made(one: Deployment, requests: int, tokens: int) -> None:
    best = min(_seconds(lambda: one.step_table(requests, tokens)) for _ in range(5))
    assert best < 0.1  # some 5 ms; other programs on the machine make it more


def _seconds(make: Callable[[], object]) -> float:
    started_s = process_time()
    make()
    return process_time() - started_s


def test_steps_are_padded_to_the_graph_that_holds_them() -> None:
    assert [padded(n, None) for n in (0, 1, 3, 5, 9, 257, 512, 513)] == [
        1, 1, 4, 8, 16, 272, 512, None,
    ]  # fmt: skip
    table = deployment().step_table(600, 1)
    assert table.step_s(9, 0) - table.step_s(10, 0) == pytest.approx(-8e-6, abs=2e-4)
    assert table.step_s(513, 0) > table.step_s(512, 0)
    assert list(GRAPH_SIZES) == sorted(set(GRAPH_SIZES))


def test_a_slow_gpu_with_fast_memory_is_bound_by_computing() -> None:
    """H20 has twice the bandwidth of an A100 and half of its FLOPS."""
    model = architecture("qwen3-32b")
    h20 = report(Deployment(model=model, gpu=gpu("h20")), batch=64, context_tokens=1000)
    a100 = report(Deployment(model=model, gpu=gpu("a100")), batch=64, context_tokens=1000)
    bound = {o.name: o.bound for o in h20.operators}
    assert bound["feed-forward"] == "compute"
    assert {o.name: o.bound for o in a100.operators}["feed-forward"] == "memory"
    assert bound["decode attention"] == "memory"


def test_absorbed_attention_computes_longer_than_it_reads_on_h20() -> None:
    one = Deployment(
        model=architecture("deepseek-v3"), gpu=gpu("h20"), data_parallel=8, expert_parallel=8,
        weights="fp8",
    )  # fmt: skip
    found = report(one, batch=64, context_tokens=4000)
    assert {o.name: o.bound for o in found.operators}["decode attention"] == "compute"


def test_a_batch_of_nothing_has_no_report() -> None:
    with pytest.raises(ConfigError, match="batch"):
        report(deployment(), batch=0, context_tokens=10)


def test_experts_that_are_used_are_read_once() -> None:
    """Of 256 experts one token uses 8, and many tokens use nearly all: some are hardly chosen."""
    one = deployment("deepseek-v3", "h20", tensor_parallel=8, weights="fp8")
    model = one.model

    def experts(batch: int) -> float:
        found = report(one, batch=batch, context_tokens=1)
        return next(o.bytes for o in found.operators if o.name == "experts")

    each = model.moe_layers * model.expert_parameters / 8
    assert experts(1) == pytest.approx(8 * each)
    shape = FITTED.expert_popularity_shape
    unused = (1 - 8 / 256) * (1 - math.log1p(-8 / 256) / shape) ** -shape
    assert experts(2) == pytest.approx(256 * (1 - unused) * each)
    assert 0.9 * 256 * each < experts(512) < 256 * each


@pytest.mark.parametrize("tokens", [2, 8, 32, 128])
def test_experts_of_unequal_popularity_are_used_as_often_as_drawing_them_shows(tokens: int) -> None:
    """Popularity drawn from the same distribution, each token's eight one after the other without
    putting back."""
    random = np.random.default_rng(tokens)
    used = []
    for _ in range(60):
        popularity = random.gamma(FITTED.expert_popularity_shape, size=256)
        # The k largest of ln(popularity) + Gumbel noise are k draws without putting back.
        noise = random.gumbel(size=(tokens, 256))
        chosen = np.argpartition(np.log(popularity) + noise, -8, axis=1)[:, -8:]
        used.append(len(np.unique(chosen)))
    one = deployment("deepseek-v3", "h20", tensor_parallel=8, weights="fp8")
    found = report(one, batch=tokens, context_tokens=1)
    experts = next(o.bytes for o in found.operators if o.name == "experts")
    each = one.model.moe_layers * one.model.expert_parameters / 8
    assert experts / each == pytest.approx(float(np.mean(used)), rel=0.06)


def test_all_reduces_cost_more_over_pcie() -> None:
    settings: dict[str, Any] = {"tensor_parallel": 4, "weights": "fp8"}
    fast = deployment("llama-3.1-70b", "h100", **settings)
    slow = deployment("llama-3.1-70b", "h100", interconnect="pcie", **settings)
    assert slow.step_table(1, 1).step_s(1, 1) > fast.step_table(1, 1).step_s(1, 1)
    found = report(fast, batch=1, context_tokens=1)
    reduce = next(o for o in found.operators if o.name == "all-reduce")
    assert reduce.link_bytes == 2 * 80 * 8192 * 2
    assert reduce.bound == "interconnect"


def test_what_would_do_has_room_for_a_block() -> None:
    with pytest.raises(ConfigError, match=r"no GPU of the catalogue would do") as told:
        deployment("llama-3.1-8b", "h100").kv_blocks(100_000_000, 8192, 1024)
    assert "and not 77 GB of H100-SXM5-80GB" in str(told.value)


def test_what_is_usable_is_told_as_the_share_that_the_engine_has() -> None:
    with pytest.raises(ConfigError, match=r"GB usable, and not 9 GB of H100-SXM5-80GB"):
        deployment("llama-3.1-8b", "h100", gpu_memory_utilization_ratio=0.1).kv_blocks(
            16, 2048, 256
        )
