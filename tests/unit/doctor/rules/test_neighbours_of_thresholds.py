"""Facts that look like a cause and are none, and a cause that no usual figure shows."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.document import diagnose_document
from tests.support.doctor_answers import first_cause, loud_causes

BUDGETS = [
    {
        "arms": [
            {
                "arm": "now",
                "settings": {"max_num_batched_tokens": 2048},
                "signals": {"output_tokens_per_s": 900},
                "current": True,
            },
            {
                "arm": "before",
                "settings": {"max_num_batched_tokens": 8192},
                "signals": {"output_tokens_per_s": 1000},
            },
        ]
    }
]


@pytest.mark.parametrize(
    ("workload", "is_named"),
    [
        pytest.param({}, False, id="nobody said that it is a job"),
        pytest.param({"isl_tokens": 900}, False, id="short prompts"),
        pytest.param({"kind": "online", "isl_tokens": 900}, False, id="people wait for it"),
        pytest.param({"kind": "offline"}, True, id="a job"),
        pytest.param({"isl_tokens": 60_000}, True, id="prompts of many steps"),
    ],
)
def test_smaller_chunks_that_are_slower(workload: dict[str, Any], is_named: bool) -> None:
    facts = {"engine": {"name": "vllm"}, "workload": workload, "comparisons": BUDGETS}
    assert ("chunk_too_small_offline" in loud_causes(facts)) is is_named


@pytest.mark.parametrize(
    ("signals", "is_named"),
    [
        pytest.param({}, True, id="a cap that is reached"),
        pytest.param(
            {"sm_active_ratio": 0.97, "dram_active_ratio": 0.85}, True, id="memory is at its rate"
        ),
        pytest.param(
            {"sm_active_ratio": 0.97, "tensor_active_ratio": 0.62},
            False,
            id="tensor cores are at their rate: a larger batch takes longer",
        ),
    ],
)
def test_a_job_at_its_cap(signals: dict[str, Any], is_named: bool) -> None:
    facts = {
        "engine": {"name": "vllm"},
        "settings": {"max_num_seqs": 256},
        "workload": {"kind": "offline"},
        "signals": {
            "requests_running": 256,
            "requests_waiting": 4000,
            "kv_cache_usage_ratio": 0.4,
            **signals,
        },
    }
    assert ("max_num_seqs_cap" in loud_causes(facts)) is is_named


@pytest.mark.parametrize(
    ("more", "is_named"),
    [
        pytest.param({"engine_process_cpu_ratio": 15.2}, False, id="computes on its cores"),
        pytest.param({"engine_process_cpu_ratio": 1.0}, True, id="launches kernels"),
        pytest.param(
            {"engine_process_cpu_ratio": 15.2, "gpu_util_ratio": 0.4}, True, id="has a card"
        ),
    ],
)
def test_graphs_that_are_off(more: dict[str, Any], is_named: bool) -> None:
    facts = {
        "engine": {"name": "vllm"},
        "settings": {"enforce_eager": True},
        "signals": {"itl_mean_s": 0.09, "requests_running": 2, **more},
    }
    assert ("enforce_eager_on" in loud_causes(facts)) is is_named


@pytest.mark.parametrize(
    ("card", "has_peers"),
    [
        ("RTX 4090", False),
        ("NVIDIA GeForce RTX 3090", False),
        ("rtx5090", False),
        ("4090", False),
        ("NVIDIA RTX 6000 Ada Generation", True),
        ("NVIDIA RTX 4000 SFF Ada Generation", True),
        ("RTX A6000", True),
        ("L40S", True),
    ],
)
def test_what_cannot_be_turned_on_is_not_asked_for(card: str, has_peers: bool) -> None:
    facts = {
        "engine": {"name": "vllm"},
        "hardware": {"gpu": card, "count": 4, "interconnect": "pcie"},
        "settings": {
            "tensor_parallel_size": 4,
            "env.NCCL_P2P_DISABLE": 1,
            "disable_custom_all_reduce": True,
        },
        "signals": {"gpu_util_ratio": [0.99, 0.7, 0.98, 0.72], "power_w": 110},
    }
    first = diagnose_document(facts).findings[0]
    assert first.cause == "no_p2p_all_reduce"
    assert ("unset NCCL_P2P_DISABLE" in first.remedy) is has_peers
    assert ("no setting turns it on" in first.remedy) is not has_peers


@pytest.mark.parametrize(
    ("delay_s", "explained"),
    [pytest.param(640, True, id="by the windows"), pytest.param(3690, False, id="by nothing told")],
)
def test_replicas_that_stay(delay_s: int, explained: bool) -> None:
    facts = {
        "settings": {
            "autoscaler.kind": "keda",
            "keda.cooldown_s": 300,
            "hpa.scale_down_stabilization_s": 300,
        },
        "signals": {"scale_down_after_idle_s": delay_s},
    }
    assert first_cause(facts) == "autoscaler_scale_down_delay"
    remedy = diagnose_document(facts).findings[0].remedy
    assert ("look at what else keeps them" in remedy) is not explained
