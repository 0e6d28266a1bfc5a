"""Client rules: who holds requests back, the client's pool, its CPU, or somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "topology": {"proxies": []},
            "workload": {"concurrency": 500},
            "signals": {"requests_running_max": 100, "requests_waiting": 0},
        },
        "client_connection_limit",
        id="a hundred of five hundred reach the engine and none waits: the client's pool",
    ),
    pytest.param(
        {
            "workload": {"concurrency": 500},
            "signals": {"requests_running_max": 100, "requests_waiting": 0},
        },
        "client_connection_limit",
        id="the same where nothing is said of the path: the client's pool",
    ),
    pytest.param(
        {
            "settings": {"max_num_seqs": 64},
            "workload": {"concurrency": 500},
            "signals": {
                "requests_running_max": 64,
                "requests_running": 64,
                "requests_waiting": 30,
                "kv_cache_usage_ratio": 0.3,
            },
        },
        "max_num_seqs_cap",
        id="requests wait at the engine: its own cap, not the client's",
    ),
    pytest.param(
        {
            "workload": {"concurrency": 100, "arrivals": "closed_loop"},
            "settings": {"max_num_seqs": 256},
            "signals": {
                "requests_running": 100,
                "requests_running_max": 100,
                "requests_waiting": 0,
                "client_requests_in_flight_max": 100,
            },
        },
        None,
        id="a closed loop whose users are all in flight: nothing",
    ),
    pytest.param(
        {
            "workload": {"concurrency": 128, "num_requests": 100},
            "signals": {"client_requests_in_flight_max": 100, "requests_waiting": 0},
        },
        None,
        id="a job of fewer requests than the concurrency: nothing",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["litellm"]},
            "workload": {"concurrency": 500},
            "signals": {"requests_running_max": 100, "requests_waiting": 0},
        },
        "proxy_concurrency_cap",
        id="the same through a proxy: the proxy's cap",
    ),
    pytest.param(
        {
            "settings": {"client.http_library": "requests", "client.max_connections": None},
            "workload": {"concurrency": 50},
            "signals": {"client_requests_in_flight_max": 50, "requests_waiting": 0},
        },
        None,
        id="a library whose pool only keeps connections caps nothing",
    ),
    pytest.param(
        {
            "settings": {"client.http_library": "openai", "client.max_connections": None},
            "workload": {"concurrency": 2000},
        },
        "client_connection_limit",
        id="more wanted than the SDK's default, which is not changed: the client's pool",
    ),
    pytest.param(
        {
            "signals": {"requests_waiting": 0},
            "comparisons": [
                {
                    "arms": [
                        {
                            "workload": {"concurrency": 50},
                            "signals": {
                                "requests_running_max": 50,
                                "client_output_tokens_per_s": 1000,
                            },
                            "arm": "0",
                        },
                        {
                            "workload": {"concurrency": 100},
                            "signals": {
                                "requests_running_max": 100,
                                "client_output_tokens_per_s": 1900,
                            },
                            "arm": "1",
                        },
                        {
                            "workload": {"concurrency": 200},
                            "signals": {
                                "requests_running_max": 100,
                                "client_output_tokens_per_s": 1900,
                            },
                            "arm": "2",
                        },
                    ]
                }
            ],
        },
        "client_connection_limit",
        id="in flight stop growing as the load points grow: the client's pool",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.max_connections": 100},
                            "signals": {"throughput_rel": 1},
                            "arm": "0",
                        },
                        {
                            "settings": {"client.max_connections": 1000},
                            "signals": {"throughput_rel": 1.9},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "client_connection_limit",
        id="a larger pool nearly doubles the throughput: the client's pool",
    ),
    pytest.param(
        {"logs": ["httpx.PoolTimeout"], "topology": {"proxies": []}},
        "client_connection_limit",
        id="the client's library logs that its pool is exhausted: the client's pool",
    ),
    pytest.param(
        {
            "workload": {"concurrency": {"min": 90}},
            "signals": {"client_requests_in_flight_max": {"min": 80, "max": 110}},
        },
        None,
        id="bounds that reach over what is wanted: not enough evidence",
    ),
    pytest.param(
        {
            "settings": {
                "client.http_library": "aiohttp",
                "client.max_connections": None,
                "client.processes": 4,
            },
            "workload": {"concurrency": 1000},
            "signals": {"client_requests_in_flight_max": 400},
        },
        "client_connection_limit",
        id="four processes with the default pool each: the client's pools",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["mileage"]},
            "workload": {"concurrency": 32},
            "settings": {"max_num_seqs": 16},
            "signals": {
                "client_requests_in_flight_max": 4,
                "proxy_requests_in_flight_max": 4,
                "requests_running": {
                    "series": [{"value": 4}, {"value": 4}, {"value": 4}, {"value": 4}, {"value": 4}]
                },
                "requests_waiting": 0,
                "engine_process_cpu_ratio": 1.0,
                "ttft_mean_s": 0.1,
                "itl_mean_s": 0.01,
            },
        },
        "client_connection_limit",
        id="a watched gateway sees four connections of thirty-two: the client's pool",
    ),
    pytest.param(
        {
            "topology": {"proxies": []},
            "settings": {"max_num_seqs": 32},
            "signals": {
                "requests_running": {
                    "series": [{"value": 8}, {"value": 8}, {"value": 8}, {"value": 8}, {"value": 8}]
                },
                "requests_waiting": 0,
                "client_e2e_mean_s": 2.0,
                "e2e_mean_s": 0.5,
            },
        },
        "client_connection_limit",
        id="running is held at one number while clients wait elsewhere: the client's pool",
    ),
    pytest.param(
        {
            "topology": {"proxies": []},
            "settings": {
                "client.http_library": "aiohttp",
                "client.max_connections": None,
                "max_num_seqs": 256,
            },
            "signals": {"requests_running_max": 100, "requests_waiting": 0, "gpu_util_ratio": 0.4},
        },
        "client_connection_limit",
        id="a default pool is full and the engine has slots: the client's pool",
    ),
    pytest.param(
        {
            "settings": {"client.max_connections": 300, "max_num_seqs": 100},
            "workload": {"concurrency": 300},
            "signals": {
                "client_requests_in_flight_max": 300,
                "requests_running": 100,
                "requests_waiting": 200,
                "kv_cache_usage_ratio": 0.4,
            },
        },
        "max_num_seqs_cap",
        id="all that the pool holds is in flight and waits at the engine: the engine's cap",
    ),
    pytest.param(
        {
            "settings": {"client.max_connections": 20},
            "workload": {"concurrency": 200},
            "topology": {"proxies": []},
        },
        "client_connection_limit",
        id="a pool of a tenth of what is wanted, by its setting: the client's pool",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
