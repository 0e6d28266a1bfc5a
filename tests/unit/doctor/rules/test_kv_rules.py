"""Room for keys and values: too little, preempted, reserved for nothing; and healthy caches."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.kv_memory import RULES as MEMORY
from mileage.doctor.rules.kv_reservation import RULES as RESERVATION

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*MEMORY, *RESERVATION) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"signals": {"kv_max_concurrency": {"max": 1.3}}}, FINDING, id="one fits"),
        pytest.param(
            {
                "settings": {"max_model_len": 131072},
                "signals": {"kv_cache_capacity_tokens": 90000},
            },
            FINDING,
            id="the pool is smaller than the longest request",
        ),
        pytest.param(
            {
                "settings": {"max_model_len": 131072},
                "workload": {"isl_tokens": 700, "osl_tokens": 200, "concurrency": 40},
                "signals": {"kv_cache_capacity_tokens": 150000},
            },
            CLEAR,
            id="one of full length fits, but all of this load do",
        ),
        pytest.param(
            {
                "workload": {"isl_tokens": 14000, "osl_tokens": 1000, "concurrency": 32},
                "signals": {"kv_cache_capacity_tokens": 50000},
            },
            FINDING,
            id="three of this load fit and thirty are wanted",
        ),
        pytest.param(
            {
                "settings": {"max_num_seqs": 256},
                "signals": {
                    "kv_cache_usage_ratio": 0.97,
                    "requests_running": 3,
                    "requests_waiting": 25,
                },
            },
            FINDING,
            id="full with three running while others wait",
        ),
        pytest.param(
            {
                "settings": {"max_num_seqs": 256},
                "signals": {
                    "kv_cache_usage_ratio": 0.97,
                    "requests_running": 60,
                    "requests_waiting": 25,
                },
            },
            OPEN,
            id="full with a batch that is worth its step",
        ),
        pytest.param(
            {
                "signals": {
                    "kv_cache_usage_ratio": 0.2,
                    "requests_running": 3,
                    "requests_waiting": 25,
                    "kv_max_concurrency": 1.2,
                }
            },
            CLEAR,
            id="few run and the pool is hardly used: not its size",
        ),
        pytest.param(
            {
                "settings": {"max_num_seqs": 128, "max_tokens_in_paged_kv_cache": 4096},
                "signals": {"requests_running": 2, "requests_waiting": {"min": 1}},
            },
            FINDING,
            id="a pool capped to a few tokens for each slot",
        ),
        pytest.param(
            {"logs": ["ValueError: No available memory for the cache blocks. Try increasing ..."]},
            FINDING,
            id="the engine has no room for a single block",
        ),
        pytest.param(
            {"logs": ["Maximum concurrency for 40,960 tokens per request: 0.61x"]},
            FINDING,
            id="the start-up log says that not one fits",
        ),
        pytest.param(
            {"logs": ["Maximum concurrency for 4,096 tokens per request: 61.2x"]},
            OPEN,
            id="the start-up log says that sixty fit",
        ),
        pytest.param(
            {"signals": {"kv_max_concurrency": {"min": 0.5, "max": 40}}},
            OPEN,
            id="bounds wider than what decides",
        ),
        pytest.param({"signals": {"kv_cache_usage_ratio": 0.99}}, OPEN, id="a full cache alone"),
    ],
)
def test_room(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("KV001", facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"signals": {"preemptions_count": 30}}, FINDING, id="thirty preemptions"),
        pytest.param(
            {"signals": {"preemptions_per_s": [0.4, 0.5]}}, FINDING, id="both replicas preempt"
        ),
        pytest.param(
            {"signals": {"preemptions_per_s": 0, "preemptions_count": 30}},
            CLEAR,
            id="none now: the counter is of the past",
        ),
        pytest.param(
            {"signals": {"preemptions_count": 3, "kv_cache_usage_ratio": {"max": 0.6}}},
            OPEN,
            id="a few since the start, and room now",
        ),
        pytest.param(
            {"signals": {"preemptions_count": 3, "requests_completed_count": 100000}},
            OPEN,
            id="three of a hundred thousand",
        ),
        pytest.param(
            {
                "signals": {
                    "preemptions_count": 4,
                    "process_uptime_s": 400000,
                    "requests_per_s": 3,
                }
            },
            OPEN,
            id="four in days of traffic",
        ),
        pytest.param(
            {"signals": {"preemptions_count": 0, "kv_cache_usage_ratio": 0.99}},
            CLEAR,
            id="full and none preempted: healthy",
        ),
        pytest.param(
            {"signals": {"kv_cache_usage_ratio": 1.0, "requests_waiting": 50}},
            OPEN,
            id="whether any is preempted is not known",
        ),
        pytest.param(
            {
                "signals": {
                    "kv_cache_usage_ratio": {"series": [{"value": 0.99}, {"value": 0.7}]},
                    "requests_running": {"series": [{"value": 40}, {"value": 22}, {"value": 41}]},
                    "requests_waiting": 12,
                }
            },
            FINDING,
            id="full, and the batch falls and rises while others wait",
        ),
        pytest.param(
            {"logs": ["KV cache pool is full. Retract requests. #retracted_reqs: 4"]},
            FINDING,
            id="SGLang says that it retracts",
        ),
        pytest.param(
            {"logs": ["Sequence group 7 is preempted by PreemptionMode.SWAP mode because ..."]},
            FINDING,
            id="vLLM says that it swaps out",
        ),
        pytest.param(
            {"logs": ["Running: 9 reqs, Waiting: 0 reqs, Preemptions: 0, KV cache usage: 91%"]},
            OPEN,
            id="a log line that counts none",
        ),
    ],
)
def test_preemption(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("KV002", facts).outcome == outcome


def test_what_preemption_wastes_is_the_share_of_prefill_that_repeats() -> None:
    facts = {
        "workload": {"isl_tokens": 1000},
        "signals": {"preemptions_per_s": 1, "prompt_tokens_per_s": 3000, "kv_cache_usage_ratio": 1},
    }
    waste = opinion("KV002", facts).waste_ratio
    assert waste is not None
    assert waste.high == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "settings": {"scheduler.policy": "guaranteed_no_evict", "max_num_seqs": 128},
                "signals": {
                    "requests_running": 12,
                    "requests_waiting": 50,
                    "kv_cache_usage_ratio": 0.25,
                },
            },
            FINDING,
            id="full length reserved, the pool a quarter used, a queue",
        ),
        pytest.param(
            {
                "engine": {"name": "triton"},
                "settings": {"scheduler.policy": None, "max_num_seqs": 128},
                "workload": {"max_tokens": 4096, "osl_tokens": 150},
                "signals": {"requests_running": 12, "requests_waiting": 50},
            },
            FINDING,
            id="the default policy reserves, and clients allow far more than they use",
        ),
        pytest.param(
            {
                "engine": {"name": "sglang"},
                "workload": {"max_tokens": 32000, "osl_tokens": 400},
                "signals": {"requests_waiting": 50, "kv_cache_usage_ratio": 0.3},
            },
            FINDING,
            id="a queue before a pool that is hardly used, and huge limits",
        ),
        pytest.param(
            {
                "settings": {"scheduler.policy": "guaranteed_no_evict", "max_num_seqs": 128},
                "signals": {
                    "requests_running": 100,
                    "requests_waiting": 50,
                    "kv_cache_usage_ratio": 0.97,
                },
            },
            CLEAR,
            id="the pool is really full",
        ),
        pytest.param(
            {
                "settings": {"scheduler.policy": "guaranteed_no_evict", "max_num_seqs": 16},
                "signals": {
                    "requests_running": 16,
                    "requests_waiting": 50,
                    "kv_cache_usage_ratio": 0.3,
                },
            },
            CLEAR,
            id="the batch is at its cap: that is what holds them back",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {
                        "settings": {"num_reserved_decode_tokens": 4096},
                        "signals": {"output_tokens_per_s": 900},
                    },
                    {
                        "settings": {"num_reserved_decode_tokens": 256},
                        "signals": {"output_tokens_per_s": 1700},
                    },
                )
            },
            FINDING,
            id="less reserved was faster",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {
                        "settings": {"scheduler.policy": "guaranteed_no_evict"},
                        "signals": {"output_tokens_per_s": 900},
                    },
                    {
                        "settings": {"scheduler.policy": "max_utilization"},
                        "signals": {"output_tokens_per_s": 1700},
                    },
                )
            },
            FINDING,
            id="the policy that reserves nothing was faster",
        ),
        pytest.param(
            {
                "settings": {"scheduler.policy": "guaranteed_no_evict"},
                "workload": {"isl_tokens": 1000, "osl_tokens": 300, "max_tokens": 800},
                "signals": {"requests_waiting": 50, "kv_cache_usage_ratio": 0.05},
            },
            CLEAR,
            id="the prompts alone would fill more, were the pool reserved",
        ),
        pytest.param(
            {"workload": {"max_tokens": 32000, "osl_tokens": 400}},
            OPEN,
            id="huge limits alone",
        ),
    ],
)
def test_reservation(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("KV003", facts).outcome == outcome
