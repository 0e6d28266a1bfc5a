"""Proxy rules: a cap, a full core, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {"settings": {"proxy.max_parallel_requests": 8, "max_num_seqs": 64}},
        "proxy_concurrency_cap",
        id="an explicit cap below the engine's slots: the proxy's cap",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["gateway"]},
            "settings": {"proxy.http_library": "httpx", "proxy.max_connections": None},
            "signals": {"proxy_requests_in_flight_max": 100, "requests_waiting": 0},
        },
        "proxy_concurrency_cap",
        id="in flight behind the proxy stop at its library's default: the proxy's cap",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["gateway"]},
            "settings": {"proxy.max_connections": 50},
            "workload": {"concurrency": 400},
            "signals": {"proxy_requests_in_flight_max": 50},
        },
        "proxy_concurrency_cap",
        id="the proxy's pool is full and more is wanted: the proxy's cap",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["gw"]},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"proxy.max_connections": 100},
                            "signals": {"client_requests_per_s": 10},
                            "arm": "0",
                        },
                        {
                            "settings": {"proxy.max_connections": 1000},
                            "signals": {"client_requests_per_s": 30},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "proxy_concurrency_cap",
        id="a larger pool of the proxy triples the rate: the proxy's cap",
    ),
    pytest.param(
        {
            "signals": {
                "proxy_process_cpu_ratio": 0.2,
                "proxy_requests_in_flight_max": 100,
                "requests_waiting": 0,
            },
            "workload": {"concurrency": 400},
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {"client_requests_per_s": 40},
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["gw"]},
                            "signals": {"client_requests_per_s": 15},
                            "current": True,
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "proxy_concurrency_cap",
        id="slower through a proxy that has CPU to spare: the proxy's cap",
    ),
    pytest.param(
        {"signals": {"proxy_process_cpu_ratio": 0.99}},
        "proxy_cpu_bound",
        id="a proxy process fills a core: the proxy's CPU",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {
                                "client_output_tokens_per_s": 4000,
                                "client_itl_mean_s": 0.02,
                            },
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["litellm"]},
                            "signals": {
                                "client_output_tokens_per_s": 2500,
                                "client_itl_mean_s": 0.035,
                            },
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "proxy_cpu_bound",
        id="through the proxy each token comes later: the proxy's CPU",
    ),
    pytest.param(
        {
            "workload": {"payload_mb": 12},
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {"client_ttft_mean_s": 0.5},
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["router"]},
                            "signals": {"client_ttft_mean_s": 2.1},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "proxy_cpu_bound",
        id="large bodies make the first token late through the proxy: the proxy's CPU",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"proxy.workers": 1},
                            "signals": {"client_requests_per_s": 80},
                            "arm": "0",
                        },
                        {
                            "settings": {"proxy.workers": 8},
                            "signals": {"client_requests_per_s": 400},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "proxy_cpu_bound",
        id="more workers pass more requests: the proxy's CPU",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "topology": {"proxies": []},
                            "signals": {"client_requests_per_s": 40, "client_ttft_mean_s": 0.2},
                            "arm": "0",
                        },
                        {
                            "topology": {"proxies": ["gw"]},
                            "signals": {"client_requests_per_s": 39.5, "client_ttft_mean_s": 0.21},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        None,
        id="a proxy that costs ten milliseconds: nothing",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "settings": {"proxy.workers": 1, "proxy.cpus": 4, "max_num_seqs": 256},
            "workload": {"rate_rps": 1},
            "signals": {
                "requests_running": 3,
                "requests_waiting": 0,
                "proxy_process_cpu_ratio": 0.05,
            },
        },
        None,
        id="one worker of a proxy that idles: nothing",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
