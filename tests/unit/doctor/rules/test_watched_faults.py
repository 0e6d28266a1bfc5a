"""What a live watch of a gateway and an engine must tell apart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "engine": {"name": "llama.cpp"},
            "topology": {"proxies": ["mileage"]},
            "settings": {"max_num_seqs": 8},
            "signals": {
                "client_process_cpu_ratio": 0.97,
                "requests_running": {
                    "series": [{"value": 2}, {"value": 1}, {"value": 2}, {"value": 2}]
                },
                "requests_waiting": 0,
                "ttft_mean_s": 0.05,
                "client_ttft_mean_s": 1.0,
                "engine_process_cpu_ratio": 0.6,
            },
        },
        "load_generator_bound",
        id="watched: the tool's core is full and the engine is calm: the load tool",
    ),
    pytest.param(
        {
            "engine": {"name": "llama.cpp"},
            "topology": {"proxies": ["mileage"]},
            "settings": {"max_num_seqs": 8},
            "workload": {
                "concurrency": 6,
                "first_diff_token": 4,
                "identical_after_diff_ratio": 0.05,
                "isl_tokens": 60,
            },
            "signals": {
                "client_process_cpu_ratio": 0.2,
                "client_requests_in_flight_max": 6,
                "requests_running": {
                    "series": [{"value": 6}, {"value": 6}, {"value": 5}, {"value": 6}]
                },
                "requests_waiting": 0,
                "ttft_mean_s": 0.05,
                "client_ttft_mean_s": 0.06,
                "prefix_cache_hit_ratio": 0.05,
                "proxy_process_cpu_ratio": 0.2,
            },
        },
        None,
        id="watched: a busy engine, all users in flight, other prompts each time: nothing",
    ),
    pytest.param(
        {
            "engine": {"name": "llama.cpp"},
            "topology": {"proxies": ["mileage"]},
            "settings": {"max_num_seqs": 2},
            "workload": {"concurrency": 16},
            "signals": {
                "client_requests_in_flight_max": 16,
                "requests_running": {
                    "series": [{"value": 2}, {"value": 2}, {"value": 2}, {"value": 2}]
                },
                "requests_waiting": 14,
                "kv_cache_usage_ratio": 0.1,
            },
        },
        "max_num_seqs_cap",
        id="watched: two slots, fourteen wait: the engine's cap",
    ),
    pytest.param(
        {
            "engine": {"name": "llama.cpp"},
            "topology": {"proxies": ["mileage"]},
            "settings": {"max_num_seqs": 4},
            "workload": {
                "concurrency": 4,
                "first_diff_token": 11,
                "identical_after_diff_ratio": 0.96,
                "isl_tokens": 400,
                "shared_prefix_ratio": 0.02,
            },
            "signals": {
                "client_requests_in_flight_max": 4,
                "requests_running": {
                    "series": [{"value": 4}, {"value": 4}, {"value": 4}, {"value": 4}]
                },
                "requests_waiting": 0,
                "prefix_cache_hit_ratio": 0.025,
                "ttft_mean_s": 0.6,
                "client_ttft_mean_s": 0.62,
            },
        },
        "volatile_prefix",
        id="watched: a clock near the head of every prompt: changing text",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
