"""Prefix caches, routers and autoscalers with which nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import loud_causes

HEALTHY = [
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"router.policy": "round_robin"},
            "topology": {"proxies": ["router"], "replicas": 4},
            "workload": {"multi_turn": False, "shared_prefix_ratio": 0},
            "signals": {
                "requests_running": [20, 21, 19, 20],
                "requests_waiting": [0, 0, 0, 0],
                "prefix_cache_hit_ratio": 0,
            },
        },
        id="round robin over prompts that share nothing",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"router.policy": "cache_aware", "router.load_term": True},
            "topology": {"proxies": ["router"], "replicas": 4},
            "workload": {"multi_turn": True},
            "signals": {
                "requests_running": [20, 24, 19, 22],
                "requests_waiting": [0, 1, 0, 0],
                "prefix_cache_hit_ratio": [0.8, 0.78, 0.82, 0.8],
            },
        },
        id="affinity with load that lies evenly",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"router.policy": "cache_aware"},
            "topology": {"proxies": ["router"], "replicas": 3},
            "workload": {"multi_turn": True, "rate_rps": 0.2},
            "signals": {
                "requests_running": [1, 0, 2],
                "requests_waiting": [0, 0, 0],
                "prefix_cache_hit_ratio": [0.8, 0.78, 0.82],
            },
        },
        id="affinity with hardly any load",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"data_parallel_size": 4},
            "signals": {
                "requests_running": [2, 1, 0, 1],
                "requests_waiting": [0, 0, 0, 0],
                "gpu_util_ratio": [0.3, 0.25, 0.2, 0.3],
            },
        },
        id="ranks with hardly any load",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"data_parallel_size": 2},
            "signals": {
                "requests_running": [52, 47],
                "requests_waiting": [0, 0],
                "kv_cache_usage_ratio": [0.5, 0.62],
                "output_tokens_per_s": [1500, 1400],
            },
        },
        id="ranks that differ by what chance gives",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"enable_prefix_caching": True, "block_size": 16},
            "workload": {"shared_prefix_tokens": 1500, "isl_tokens": 2000},
            "signals": {
                "prefix_cache_hit_ratio": 0.74,
                "requests_running": 20,
                "requests_waiting": 0,
            },
        },
        id="a cache that finds what is shared",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"enable_prefix_caching": False},
            "workload": {"isl_tokens": 120, "shared_prefix_tokens": 10},
            "signals": {"requests_running": 20, "requests_waiting": 0},
        },
        id="a cache that is off for short prompts of their own",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"enable_prefix_caching": True, "block_size": 784},
            "workload": {"isl_tokens": 500, "shared_prefix_ratio": 0},
            "signals": {"prefix_cache_hit_ratio": 0, "requests_running": 20, "requests_waiting": 0},
        },
        id="long blocks and prompts of their own",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"enable_prefix_caching": True, "block_size": 16},
            "workload": {"isl_tokens": 4000, "shared_prefix_tokens": 100},
            "signals": {
                "prefix_cache_hit_ratio": 0.024,
                "requests_running": 20,
                "requests_waiting": 0,
            },
        },
        id="a shared head of a fortieth of the prompt",
    ),
    pytest.param(
        {
            "settings": {
                "hpa.metric": "requests_waiting",
                "hpa.target": 5,
                "hpa.max_replicas": 8,
                "hpa.min_replicas": 1,
            },
            "signals": {
                "requests_waiting": 1,
                "replicas_current": 3,
                "replicas_desired": 3,
                "replicas_ready": 3,
                "replicas_pending": 0,
                "autoscaler_metric_errors_count": 0,
            },
        },
        id="scaling on requests that wait",
    ),
    pytest.param(
        {
            "settings": {
                "hpa.metric": "requests_running",
                "hpa.target": 40,
                "max_num_seqs": 64,
                "hpa.max_replicas": 8,
            },
            "signals": {
                "requests_waiting": 0,
                "hpa_metric_value": 38,
                "replicas_current": 3,
                "replicas_desired": 3,
            },
        },
        id="a target that is within reach",
    ),
    pytest.param(
        {
            "settings": {"hpa.max_replicas": 8},
            "hardware": {"schedulable_gpus": 8},
            "signals": {
                "replicas_current": 4,
                "replicas_ready": 3,
                "replicas_pending": 1,
                "replicas_desired": 4,
                "node_provision_s": 120,
            },
        },
        id="one pod that starts",
    ),
    pytest.param(
        {
            "settings": {
                "autoscaler.kind": "keda",
                "keda.cooldown_s": 60,
                "hpa.scale_down_stabilization_s": 60,
                "keda.min_replicas": 1,
            },
            "signals": {
                "scale_down_after_idle_s": 100,
                "replicas_current": {
                    "series": [{"value": 4}, {"value": 3}, {"value": 2}, {"value": 1}]
                },
            },
        },
        id="windows of a minute",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "hpa", "hpa.scale_down_stabilization_s": 300},
            "signals": {"scale_down_after_idle_s": 320, "startup_total_s": 400},
        },
        id="a window shorter than a start",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "hpa", "hpa.scale_down_stabilization_s": 300},
            "signals": {
                "replicas_current": 5,
                "replicas_desired": 4,
                "requests_running": 80,
                "requests_waiting": 3,
            },
        },
        id="a drain under load",
    ),
    pytest.param(
        {
            "settings": {
                "autoscaler.kind": "keda",
                "keda.min_replicas": 1,
                "keda.cooldown_s": 300,
                "hpa.scale_down_policy": "gradual",
            },
            "signals": {
                "replicas_current": {
                    "series": [{"value": 5}, {"value": 3}, {"value": 2}, {"value": 1}]
                }
            },
        },
        id="KEDA that keeps one and goes step by step",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"router.policy": "round_robin"},
                            "signals": {"ttft_mean_s": 0.5, "prefix_cache_hit_ratio": 0.02},
                            "arm": "0",
                        },
                        {
                            "settings": {"router.policy": "cache_aware"},
                            "signals": {"ttft_mean_s": 0.49, "prefix_cache_hit_ratio": 0.021},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        id="policies that make no difference",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"enable_prefix_caching": True},
            "workload": {"prefix_change_period_s": 86400},
            "signals": {
                "prefix_cache_hit_ratio": 0.7,
                "requests_running": 5,
                "requests_waiting": 0,
            },
        },
        id="a date that changes once a day",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"enable_prefix_caching": True, "router.policy": "consistent_hash"},
            "topology": {"proxies": ["router"], "replicas": 2},
            "workload": {"multi_turn": True},
            "signals": {
                "prefix_cache_hit_ratio": 0.55,
                "requests_running": [12, 10],
                "requests_waiting": [0, 0],
            },
        },
        id="turns that stay with their replica",
    ),
]


@pytest.mark.parametrize("facts", HEALTHY)
def test_nothing_is_found(facts: dict[str, Any]) -> None:
    assert loud_causes(facts) == []
