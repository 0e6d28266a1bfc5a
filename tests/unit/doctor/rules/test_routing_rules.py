"""Routing: blind to caches, blind to load, or uneven behind one endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "settings": {"router.policy": "round_robin"},
            "topology": {"replicas": 4},
            "workload": {"multi_turn": True},
            "signals": {"prefix_cache_hit_ratio": 0.25},
        },
        "cache_unaware_routing",
        id="turns go round the replicas: blind routing",
    ),
    pytest.param(
        {
            "workload": {"multi_turn": True},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"router.policy": "least_loaded"},
                            "signals": {"ttft_mean_s": 2},
                            "arm": "0",
                        },
                        {
                            "settings": {"router.policy": "cache_aware"},
                            "signals": {"ttft_mean_s": 0.5},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "cache_unaware_routing",
        id="affinity answers much sooner: blind routing",
    ),
    pytest.param(
        {
            "workload": {"multi_turn": True},
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"replicas": 1},
                            "signals": {"prefix_cache_hit_ratio": 0.8},
                            "arm": "0",
                        },
                        {
                            "topology": {"replicas": 8},
                            "signals": {"prefix_cache_hit_ratio": 0.15},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "cache_unaware_routing",
        id="hits fall as replicas are added: blind routing",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "round_robin"},
            "topology": {"replicas": 4},
            "workload": {"multi_turn": False, "shared_prefix_tokens": 2000, "prefix_groups": 1},
            "signals": {"prefix_cache_hit_ratio": 0.9},
        },
        None,
        id="one head common to all is in every replica: nothing",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "random"},
            "topology": {"replicas": 3},
            "workload": {"prefix_groups": 64, "shared_prefix_tokens": 3000},
            "signals": {"prefix_cache_hit_ratio": 0.3},
        },
        "cache_unaware_routing",
        id="many groups on few replicas at random: blind routing",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "cache_aware"},
            "signals": {"requests_waiting": [80, 0, 0, 0]},
        },
        "affinity_hotspot",
        id="one replica queues and its peers do not: a hot spot",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "consistent_hash"},
            "topology": {"replicas": 3},
            "signals": {
                "kv_cache_usage_ratio": [0.99, 0.2, 0.1],
                "requests_running": [60, 4, 4],
                "preemptions_per_s": [2, 0, 0],
            },
        },
        "affinity_hotspot",
        id="one replica is full and preempts, its peers idle: a hot spot",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"router.policy": "kv_aware"},
                            "signals": {"ttft_p99_s": 9},
                            "arm": "0",
                        },
                        {
                            "settings": {"router.policy": "round_robin"},
                            "signals": {"ttft_p99_s": 2},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "affinity_hotspot",
        id="round robin has a better tail than affinity: a hot spot",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "cache_aware"},
            "topology": {"replicas": 3},
            "signals": {
                "requests_running": [20, 22, 21],
                "requests_waiting": [0, 0, 0],
                "prefix_cache_hit_ratio": [0.8, 0.82, 0.8],
            },
        },
        None,
        id="replicas are loaded alike: nothing",
    ),
    pytest.param(
        {
            "settings": {"router.policy": "consistent_hash"},
            "topology": {"proxies": ["router"]},
            "signals": {
                "gpu_util_ratio": [0.98, 0.1, 0.12, 0.1],
                "ttft_p99_s": [12, 0.3, 0.3, 0.3],
            },
        },
        "affinity_hotspot",
        id="one card works and three idle behind a hashing router: a hot spot",
    ),
    pytest.param(
        {"settings": {"data_parallel_size": 2}, "signals": {"requests_running": [100, 20]}},
        "dp_imbalance",
        id="one of two ranks runs five times as many: uneven ranks",
    ),
    pytest.param(
        {
            "settings": {"data_parallel_size": 4, "max_num_seqs": 64},
            "signals": {
                "requests_running": [64, 64, 20, 18],
                "requests_waiting": [30, 25, 0, 0],
                "kv_cache_usage_ratio": [0.7, 0.7, 0.2, 0.2],
            },
        },
        "dp_imbalance",
        id="two ranks queue at their cap, two have room: uneven ranks",
    ),
    pytest.param(
        {
            "settings": {"data_parallel_size": 8},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"dp_balancer.mode": "internal"},
                            "signals": {"output_tokens_per_s": 5000},
                            "arm": "0",
                        },
                        {
                            "settings": {"dp_balancer.mode": "external"},
                            "signals": {"output_tokens_per_s": 8000},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "dp_imbalance",
        id="an external balancer is much faster: uneven ranks",
    ),
    pytest.param(
        {
            "settings": {"data_parallel_size": 2},
            "logs": [
                "INFO 03-11 06:16:52 [loggers.py:257] Engine 000: Avg prompt throughput: "
                "16.5 tokens/s, Avg generation throughput: 157.2 tokens/s, Running: 50 reqs, "
                "Waiting: 40 reqs, GPU KV cache usage: 60.0%, Prefix cache hit rate: 0.0%",
                "INFO 03-11 06:16:52 [loggers.py:257] Engine 001: Avg prompt throughput: 0.0 "
                "tokens/s, Avg generation throughput: 809.3 tokens/s, Running: 3 reqs, "
                "Waiting: 0 reqs, GPU KV cache usage: 3.6%, Prefix cache hit rate: 0.0%",
            ],
        },
        "dp_imbalance",
        id="the engine's log lines show it rank by rank: uneven ranks",
    ),
    pytest.param(
        {
            "settings": {"data_parallel_size": 4, "dp_balancer.mode": "internal"},
            "signals": {
                "requests_running": [60, 64, 58, 62],
                "requests_waiting": [0, 0, 1, 0],
                "gpu_util_ratio": [0.9, 0.9, 0.91, 0.9],
            },
        },
        None,
        id="ranks within a tenth of each other: nothing",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
