"""Clients, load tools and proxies that look like one another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.6.1"},
            "settings": {"max_num_seqs": 256},
            "workload": {"concurrency": 200},
            "signals": {"requests_running_max": 100},
        },
        "client_connection_limit",
        id="hundred run of two hundred users and the engine has slots: the client's pool",
    ),
    pytest.param(
        {
            "topology": {"replicas": 8, "proxies": []},
            "workload": {"concurrency": 256},
            "signals": {"requests_running": 32, "requests_waiting": 0},
        },
        None,
        id="one number of eight replicas is no shortfall",
    ),
    pytest.param(
        {
            "workload": {"concurrency": 400},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.http_library": "httpx"},
                            "signals": {
                                "client_requests_per_s": 20,
                                "client_requests_in_flight_max": 100,
                            },
                            "arm": "0",
                        },
                        {
                            "settings": {"client.http_library": "openai"},
                            "signals": {
                                "client_requests_per_s": 45,
                                "client_requests_in_flight_max": 400,
                            },
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "client_connection_limit",
        id="libraries with other default pools: the client's pool",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.http_library": "httpx"},
                            "signals": {"client_requests_per_s": 200},
                            "arm": "0",
                        },
                        {
                            "settings": {"client.http_library": "aiohttp"},
                            "signals": {"client_requests_per_s": 450},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "load_generator_bound",
        id="libraries with the same pool disagree: the load tool",
    ),
    pytest.param(
        {
            "settings": {"client.tool": "script"},
            "comparisons": [
                {
                    "arms": [
                        {
                            "workload": {"concurrency": 32},
                            "signals": {"client_ttft_mean_s": 0.3, "ttft_mean_s": 0.25},
                            "arm": "0",
                        },
                        {
                            "workload": {"concurrency": 1024},
                            "signals": {
                                "client_ttft_mean_s": 9,
                                "ttft_mean_s": 0.4,
                                "requests_waiting": 0,
                            },
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "load_generator_bound",
        id="client far later than the server at one load point: the load tool",
    ),
    pytest.param(
        {
            "signals": {
                "client_ttft_mean_s": 0.12,
                "ttft_mean_s": 0.08,
                "requests_waiting": 0,
                "requests_running": 1,
            }
        },
        None,
        id="a network path of tens of milliseconds: nothing",
    ),
    pytest.param(
        {"topology": {"proxies": ["nginx"]}, "logs": ["1024 worker_connections are not enough"]},
        "proxy_concurrency_cap",
        id="nginx logs that its connections are used up: the proxy's cap",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"proxy.spend_logging": True},
                            "signals": {"client_requests_per_s": 100},
                            "arm": "0",
                        },
                        {
                            "settings": {"proxy.spend_logging": False},
                            "signals": {"client_requests_per_s": 210},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "proxy_cpu_bound",
        id="without spend rows twice the rate: the proxy's CPU",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"proxy.kind": "litellm"},
                            "signals": {"client_requests_per_s": 100},
                            "arm": "0",
                        },
                        {
                            "settings": {"proxy.kind": "envoy"},
                            "signals": {"client_requests_per_s": 400},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "proxy_cpu_bound",
        id="another proxy passes four times as many: the proxy's CPU",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "settings": {"proxy.workers": 1, "proxy.cpus": 8},
            "signals": {"client_ttft_mean_s": 3, "ttft_mean_s": 0.2, "requests_waiting": 0},
        },
        "proxy_cpu_bound",
        id="late through one worker beside seven idle CPUs: the proxy's CPU",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {"topology": {"proxies": []}, "signals": {"throughput_rel": 1}, "arm": "0"},
                        {
                            "topology": {"proxies": ["litellm"]},
                            "signals": {"throughput_rel": 0.4},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "proxy_cpu_bound",
        id="less than half the throughput through the proxy: the proxy's CPU",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "settings": {
                "proxy.kind": "litellm",
                "proxy.max_parallel_requests": 10,
                "max_num_seqs": 256,
            },
            "signals": {"requests_running": 10, "requests_waiting": 0, "gpu_util_ratio": 0.5},
        },
        "proxy_concurrency_cap",
        id="ten run at the proxy's limit of ten, with slots for more: the proxy's cap",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "settings": {"proxy.max_parallel_requests": 100, "max_num_seqs": 16},
            "signals": {
                "requests_running": 16,
                "requests_waiting": 30,
                "kv_cache_usage_ratio": 0.2,
            },
        },
        "max_num_seqs_cap",
        id="the proxy lets more through than there are slots: the engine's cap",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {"client_requests_per_s": {"min": 30}},
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["litellm"]},
                            "signals": {"client_requests_per_s": {"max": 60}},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        None,
        id="bounds that may mean gain or loss: not enough evidence",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
