"""Prefix caches, routers and autoscalers that look like one another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "engine": {"name": "tensorrt-llm"},
            "settings": {"enable_prefix_caching": False},
            "workload": {"shared_prefix_ratio": {"min": 0.5}},
        },
        "prefix_cache_disabled",
        id="block reuse is off though half of each prompt is shared: off",
    ),
    pytest.param(
        {
            "workload": {"shared_prefix_ratio": 0.3},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"enable_prefix_caching": False},
                            "signals": {"throughput_rel": 1},
                            "arm": "0",
                        },
                        {
                            "settings": {"enable_prefix_caching": True},
                            "signals": {"throughput_rel": 0.98},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        None,
        id="off, and on it gains nothing: nothing",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "workload": {"inter_turn_gap_s": 0.5},
                            "signals": {
                                "prefix_cache_hits_tokens": 2000,
                                "prefix_cache_queries_tokens": 2400,
                            },
                            "arm": "0",
                        },
                        {
                            "workload": {"inter_turn_gap_s": 3},
                            "signals": {
                                "prefix_cache_hits_tokens": 0,
                                "prefix_cache_queries_tokens": 2400,
                            },
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "volatile_prefix",
        id="counts of hits fall to none after the change: changing text",
    ),
    pytest.param(
        {
            "workload": {"multi_turn": True, "first_diff_token": {"max": 20}},
            "settings": {"enable_prefix_caching": True},
            "signals": {"prefix_cache_hits_tokens": 0, "prefix_cache_queries_tokens": 90000},
        },
        "volatile_prefix",
        id="conversations whose first line changes: changing text",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"router.policy": "round_robin"},
                            "signals": {"ttft_p50_s": 1.5},
                            "arm": "0",
                        },
                        {
                            "settings": {"router.policy": "kv_aware"},
                            "signals": {"ttft_p50_s": 0.5},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "cache_unaware_routing",
        id="affinity answers three times sooner: blind routing",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"router.policy": "kv_aware"},
                            "signals": {"requests_waiting": [90, 0, 1]},
                            "arm": "0",
                        },
                        {
                            "settings": {"router.policy": "round_robin"},
                            "signals": {"requests_waiting": [12, 13, 11]},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "affinity_hotspot",
        id="one replica queues with affinity and none with round robin: a hot spot",
    ),
    pytest.param(
        {
            "settings": {"data_parallel_size": 2},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"dp_balancer.mode": "internal"},
                            "signals": {"requests_running": [90, 20]},
                            "arm": "0",
                        },
                        {
                            "settings": {"dp_balancer.mode": "external"},
                            "signals": {"requests_running": [54, 56]},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "dp_imbalance",
        id="ranks are even with an external balancer only: uneven ranks",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "cache_aware"},
            "topology": {"replicas": 2},
            "signals": {"requests_running": [{"min": 40}, {"max": 5}]},
        },
        "affinity_hotspot",
        id="bounds that are far apart: a hot spot",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "cache_aware"},
            "topology": {"replicas": 2},
            "signals": {"requests_running": [{"min": 4}, {"max": 50}]},
        },
        None,
        id="bounds that overlap: not enough evidence",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "cache_aware", "router.load_term": True},
            "topology": {"replicas": 3},
            "signals": {"requests_waiting": [60, 0, 0], "requests_running": [64, 10, 9]},
        },
        "affinity_hotspot",
        id="a load term that is too weak: a hot spot",
    ),
    pytest.param(
        {
            "topology": {"orchestrator": "kubernetes"},
            "signals": {"replicas_desired": 40, "replicas_ready": 2, "replicas_pending": 38},
        },
        "autoscaler_overshoot",
        id="nineteen of twenty pods pending: too many asked for",
    ),
    pytest.param(
        {
            "settings": {
                "autoscaler.kind": "keda",
                "keda.cooldown_s": 300,
                "hpa.scale_down_stabilization_s": 300,
            },
            "signals": {"scale_down_after_idle_s": {"min": 600}},
        },
        "autoscaler_scale_down_delay",
        id="at least the sum of both windows: too late",
    ),
    pytest.param(
        {
            "settings": {"hpa.max_replicas": None},
            "signals": {"replicas_pending": {"min": 1}},
            "logs": [
                "Warning FailedScheduling 0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
            ],
        },
        "autoscaler_overshoot",
        id="the scheduler says that GPUs are used up: too many asked for",
    ),
    pytest.param(
        {"settings": {"hpa.metric": "DCGM_FI_DEV_FB_USED"}},
        "autoscale_on_gpu_util",
        id="the scaler follows memory that is taken once: GPU utilisation",
    ),
    pytest.param(
        {
            "settings": {"hpa.metric": "kv_cache_usage_ratio", "hpa.target": 0.7},
            "signals": {"kv_cache_usage_ratio": 0.5, "requests_waiting": 0, "requests_running": 9},
        },
        None,
        id="a share with a target that it can reach: nothing",
    ),
    pytest.param(
        {
            "settings": {
                "hpa.metric": "requests_running",
                "hpa.target": 100,
                "max_num_seqs": 64,
                "hpa.max_replicas": 4,
            },
            "signals": {"replicas_current": 4, "hpa_metric_value": 60},
        },
        None,
        id="all replicas that are allowed exist: nothing",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "hpa", "hpa.scale_down_stabilization_s": 300},
            "signals": {
                "replicas_current": 4,
                "replicas_desired": 4,
                "requests_running": 40,
                "requests_waiting": 0,
            },
        },
        None,
        id="a window and steady traffic: nothing",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
