"""Clients, load tools and proxies with which nothing is wrong."""

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
            "topology": {"proxies": []},
            "workload": {"kind": "online", "concurrency": 64},
            "signals": {
                "requests_running": 40,
                "requests_waiting": 0,
                "kv_cache_usage_ratio": 0.4,
                "itl_p50_s": 0.02,
                "sm_active_ratio": 0.85,
            },
        },
        id="users who think between two requests",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "topology": {"proxies": ["litellm"]},
            "settings": {"max_num_seqs": 256, "proxy.workers": 4, "proxy.cpus": 4},
            "workload": {"kind": "online", "concurrency": 100},
            "signals": {
                "requests_running": 80,
                "requests_waiting": 0,
                "kv_cache_usage_ratio": 0.4,
                "itl_p50_s": 0.02,
                "proxy_process_cpu_ratio": 0.4,
            },
        },
        id="users who think, through a proxy with CPU to spare",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "workload": {
                "kind": "online",
                "arrivals": "poisson",
                "rate_rps": 4,
                "concurrency": 128,
            },
            "signals": {
                "client_requests_in_flight_max": 61,
                "requests_running_max": 60,
                "requests_waiting": 0,
            },
        },
        id="arrivals of their own below a limit of concurrency",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {"client.http_library": "aiohttp", "client.max_connections": None},
            "workload": {"kind": "online", "rate_rps": 4},
            "signals": {"requests_running_max": 31, "requests_waiting": 0, "ttft_p99_s": 0.3},
        },
        id="a rate that needs a third of the pool",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "settings": {
                "client.http_library": "httpx",
                "client.max_connections": None,
                "max_num_seqs": 256,
            },
            "workload": {"kind": "online", "concurrency": 50},
            "signals": {"client_requests_in_flight_max": 50, "requests_waiting": 0},
        },
        id="a pool twice as large as what is wanted",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "workload": {"kind": "benchmark", "concurrency": 64},
            "settings": {"client.tool": "vllm_bench"},
            "signals": {
                "client_process_cpu_ratio": 0.5,
                "client_ttft_mean_s": 0.31,
                "ttft_mean_s": 0.29,
                "requests_running": 63,
                "requests_waiting": 0,
                "sm_active_ratio": 0.9,
            },
        },
        id="a load tool at half a core that agrees with the server",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "workload": {"kind": "benchmark", "concurrency": 512},
            "settings": {"client.tool": "vllm_bench", "max_num_seqs": 256},
            "signals": {
                "client_process_cpu_ratio": 0.88,
                "client_ttft_mean_s": 3.1,
                "ttft_mean_s": 3.0,
                "requests_running": 256,
                "requests_waiting": 250,
                "kv_cache_usage_ratio": 0.97,
                "sm_active_ratio": 0.95,
                "preemptions_count": 0,
            },
        },
        id="a busy load tool at a server that is full",
    ),
    pytest.param(
        {
            "settings": {"proxy.kind": "nginx"},
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {
                                "client_ttft_mean_s": 0.2,
                                "client_output_tokens_per_s": 2000,
                            },
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["nginx"]},
                            "signals": {
                                "client_ttft_mean_s": 0.204,
                                "client_output_tokens_per_s": 1985,
                            },
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        id="a proxy that costs four milliseconds",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {"client_ttft_mean_s": 0.02},
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["litellm"]},
                            "signals": {"client_ttft_mean_s": 0.05},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        id="a proxy that costs thirty milliseconds of a short answer",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "topology": {"proxies": ["gateway"]},
            "settings": {"proxy.max_parallel_requests": 64, "max_num_seqs": 256},
            "workload": {"kind": "online", "rate_rps": 2},
            "signals": {
                "proxy_requests_in_flight_max": 18,
                "requests_running": 12,
                "requests_waiting": 0,
                "ttft_p99_s": 0.2,
            },
        },
        id="a proxy's cap that is far from reached",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10", "variant": "v1"},
            "model": {"params_b": 8, "architecture": ["dense"], "dtype": "bf16"},
            "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
            "topology": {"proxies": ["gateway"]},
            "settings": {"proxy.max_parallel_requests": 32, "max_num_seqs": 256},
            "workload": {"kind": "online", "slo_itl_s": 0.03, "concurrency": 32},
            "signals": {
                "proxy_requests_in_flight_max": 32,
                "requests_running": 32,
                "requests_waiting": 0,
                "itl_p99_s": 0.028,
            },
        },
        id="a proxy's cap at what the clients want",
    ),
]


@pytest.mark.parametrize("facts", HEALTHY)
def test_nothing_is_found(facts: dict[str, Any]) -> None:
    assert loud_causes(facts) == []
