"""Widths that do not pay, and caches that every rank copies."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rules.kv_copies import RULES as COPIES
from mileage.doctor.rules.parallel import RULES as WIDTH


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*COPIES, *WIDTH) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def width(size: int, current: bool = False, **signals: Any) -> dict[str, Any]:
    arm = {"arm": str(size), "settings": {"tensor_parallel_size": size}, "signals": signals}
    return arm | {"current": current}


def sweep(*arms: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"comparisons": [{"arms": list(arms)}], **rest}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            sweep(width(1, output_tokens_per_s=900), width(2, output_tokens_per_s=880)),
            "finding",
            id="two cards serve no more than one",
        ),
        pytest.param(
            sweep(width(1, throughput_rel=1), width(4, throughput_rel={"max": 1})),
            "finding",
            id="a bound that says no faster is enough",
        ),
        pytest.param(
            sweep(width(1, itl_mean_s=0.012), width(4, itl_mean_s=0.015)),
            "finding",
            id="gaps between tokens grow with the width",
        ),
        pytest.param(
            sweep(width(2, total_tokens_per_s=1000), width(8, total_tokens_per_s=1500)),
            "finding",
            id="four times the cards give half as much again",
        ),
        pytest.param(
            sweep(width(4, output_tokens_per_s=1000), width(8, output_tokens_per_s=1900)),
            "clear",
            id="twice the cards give nearly twice as much",
        ),
        pytest.param(
            sweep(width(1, itl_mean_s=0.030), width(4, itl_mean_s=0.012)),
            "not_enough_evidence",
            id="shorter gaps may be what the width is for: throughput is not told",
        ),
        pytest.param(
            sweep(
                width(1, current=True, output_tokens_per_s=900), width(4, output_tokens_per_s=800)
            ),
            "clear",
            id="the wide arm is of the past",
        ),
        pytest.param(
            sweep(width(1, throughput_rel=1), width(4, throughput_rel={"min": 0.8, "max": 3.9})),
            "not_enough_evidence",
            id="bounds wider than the question",
        ),
        pytest.param(
            {
                "model": {"params_b": 7, "dtype": "fp16"},
                "hardware": {"gpu": "A100-80GB", "count": 4},
                "settings": {"tensor_parallel_size": 4},
                "workload": {"concurrency": 100},
                "signals": {"gpu_util_ratio": [0.4, 0.35, 0.41, 0.38]},
            },
            "finding",
            id="a small model, much to do, and four idle cards",
        ),
        pytest.param(
            {
                "model": {"name": "Qwen2.5-1.5B-Instruct"},
                "settings": {"tensor_parallel_size": 2},
                "signals": {"requests_running": 40, "gpu_util_ratio": {"max": 0.5}},
            },
            "finding",
            id="the size is in the model's name",
        ),
        pytest.param(
            {
                "model": {"params_b": 7},
                "settings": {"tensor_parallel_size": 4},
                "signals": {"gpu_util_ratio": [0.1, 0.1, 0.1, 0.1]},
            },
            "not_enough_evidence",
            id="idle cards without a known load",
        ),
        pytest.param(
            {
                "model": {"params_b": 70, "dtype": "bf16"},
                "hardware": {"gpu": "A100-80GB"},
                "settings": {"tensor_parallel_size": 4},
                "signals": {"gpu_util_ratio": 0.3, "requests_running": 40},
            },
            "clear",
            id="the weights need the width, whatever idles",
        ),
        pytest.param(
            {
                "model": {"params_b": 7, "dtype": "bf16"},
                "settings": {"tensor_parallel_size": 4},
                "signals": {"sm_active_ratio": [0.8, 0.8, 0.8, 0.8], "requests_running": 200},
            },
            "clear",
            id="a small model whose cards are busy",
        ),
        pytest.param(
            {
                "model": {"params_b": 7},
                "settings": {"tensor_parallel_size": 1},
                "signals": {"gpu_util_ratio": 0.2, "requests_running": 40},
            },
            "clear",
            id="one card is not split",
        ),
        pytest.param(
            {
                "model": {"params_b": 7, "dtype": "bf16"},
                "settings": {"tensor_parallel_size": 2},
                "signals": {
                    "gpu_util_ratio": 0.3,
                    "requests_running": 60,
                    "engine_process_cpu_ratio": 1.0,
                },
            },
            "not_enough_evidence",
            id="a core at its limit is the likelier cause",
        ),
        pytest.param(
            {
                "model": {"params_b": 7, "dtype": "bf16"},
                "settings": {"tensor_parallel_size": 4},
                "workload": {"slo_itl_s": 0.010},
                "signals": {"gpu_util_ratio": 0.4, "requests_running": 4, "itl_p99_s": 0.007},
            },
            "clear",
            id="half the width would miss the agreed gap between tokens",
        ),
    ],
)
def test_width(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("TP001", facts).outcome == outcome


def test_the_waste_of_a_width_is_what_fewer_cards_would_have_served() -> None:
    found = opinion(
        "TP001", sweep(width(1, output_tokens_per_s=900), width(4, output_tokens_per_s=900))
    )
    assert found.waste_ratio is not None
    assert found.waste_ratio.low == found.waste_ratio.high == pytest.approx(0.75)
    assert Change("tensor_parallel_size", 1) in found.changes
    assert Change("data_parallel_size", 4) in found.changes


MLA = {"architecture": ["moe", "mla"]}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "model": MLA,
                "settings": {"tensor_parallel_size": 8},
                "signals": {"kv_cache_usage_ratio": {"min": 0.95}, "requests_waiting": {"min": 1}},
            },
            "finding",
            id="the pool is full and requests wait",
        ),
        pytest.param(
            {
                "model": {"kv_heads": 1},
                "settings": {"tensor_parallel_size": 4},
                "signals": {"preemptions_per_s": 0.5},
            },
            "finding",
            id="multi-query attention, and requests are preempted",
        ),
        pytest.param(
            {
                "model": {"name": "DeepSeek-R1"},
                "settings": {"tensor_parallel_size": 8},
                "workload": {"concurrency": 100, "isl_tokens": 20000, "osl_tokens": 1000},
                "signals": {"kv_cache_capacity_tokens": 500_000},
            },
            "finding",
            id="the pool is smaller than what clients want in flight",
        ),
        pytest.param(
            {
                "model": MLA,
                "comparisons": [
                    {
                        "arms": [
                            {
                                "arm": "tensor parallel",
                                "settings": {"tensor_parallel_size": 8},
                                "signals": {"kv_capacity_rel": 1},
                                "current": True,
                            },
                            {
                                "arm": "by ranks",
                                "settings": {"tensor_parallel_size": 1, "data_parallel_size": 8},
                                "signals": {"kv_capacity_rel": {"min": 5}},
                            },
                        ]
                    }
                ],
            },
            "finding",
            id="attention by ranks holds five times as much",
        ),
        pytest.param(
            {
                "model": MLA,
                "settings": {"tensor_parallel_size": 8},
                "workload": {"isl_tokens": 60000, "slo_ttft_s": 3},
                "signals": {"ttft_p99_s": 20},
            },
            "finding",
            id="long prompts are late",
        ),
        pytest.param(
            {
                "model": MLA,
                "settings": {"tensor_parallel_size": 8},
                "signals": {"kv_cache_usage_ratio": 0.2, "requests_waiting": 0},
            },
            "clear",
            id="copies that cost nothing: the pool is hardly used",
        ),
        pytest.param(
            {
                "model": {"architecture": ["dense"], "kv_heads": 8},
                "settings": {"tensor_parallel_size": 8},
                "signals": {"kv_cache_usage_ratio": 1.0, "preemptions_count": 50},
            },
            "clear",
            id="eight heads on eight cards are no copies",
        ),
        pytest.param(
            {
                "engine": {"name": "sglang"},
                "model": MLA,
                "settings": {"tensor_parallel_size": 8, "data_parallel_size": 8},
                "signals": {"kv_cache_usage_ratio": 0.99},
            },
            "clear",
            id="SGLang's attention is by ranks already",
        ),
        pytest.param(
            {
                "engine": {"name": "vllm"},
                "model": MLA,
                "settings": {"tensor_parallel_size": 1, "data_parallel_size": 8},
                "signals": {"kv_cache_usage_ratio": 0.99},
            },
            "clear",
            id="vLLM's ranks with one card each",
        ),
        pytest.param(
            {
                "model": MLA,
                "comparisons": [
                    {
                        "arms": [
                            width(4, kv_cache_capacity_tokens=400_000),
                            width(8, kv_cache_capacity_tokens=450_000),
                        ]
                    }
                ],
            },
            "finding",
            id="twice the cards hold hardly more",
        ),
        pytest.param(
            {"model": MLA, "signals": {"kv_cache_usage_ratio": 0.99}},
            "not_enough_evidence",
            id="the width is not known",
        ),
        pytest.param(
            {
                "model": MLA,
                "settings": {"tensor_parallel_size": 8},
                "signals": {"kv_cache_usage_ratio": {"min": 0.3}},
            },
            "not_enough_evidence",
            id="a bound that leaves the pool's use open",
        ),
    ],
)
def test_copies(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("TP002", facts).outcome == outcome


def test_attention_by_ranks_is_not_a_smaller_width() -> None:
    arms = [
        {
            "arm": "a",
            "settings": {"tensor_parallel_size": 8},
            "signals": {"ttft_mean_s": 9},
            "current": True,
        },
        {
            "arm": "b",
            "settings": {"tensor_parallel_size": 1, "data_parallel_size": 8},
            "signals": {"ttft_mean_s": 3},
        },
    ]
    facts = {"model": MLA, "comparisons": [{"arms": arms}]}
    assert opinion("TP001", facts).outcome == "clear"
    assert opinion("TP002", facts).outcome == "finding"


def test_sglang_keeps_its_width_when_attention_goes_by_ranks() -> None:
    facts = {
        "engine": {"name": "sglang"},
        "model": MLA,
        "settings": {"tensor_parallel_size": 8},
        "signals": {"kv_cache_usage_ratio": 0.99},
    }
    assert opinion("TP002", facts).changes == (Change("data_parallel_size", 8),)
