"""Load tools that measure themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.tool": "a"},
                            "signals": {"client_output_tokens_per_s": 900},
                            "arm": "0",
                        },
                        {
                            "settings": {"client.tool": "b"},
                            "signals": {"client_output_tokens_per_s": 2100},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "load_generator_bound",
        id="two tools measure one server and disagree: the load tool",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.tool": "a"},
                            "signals": {"client_output_tokens_per_s": 2000},
                            "arm": "0",
                        },
                        {
                            "settings": {"client.tool": "b"},
                            "signals": {"client_output_tokens_per_s": 2100},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        None,
        id="two tools agree within noise: nothing",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.processes": 1},
                            "signals": {"client_requests_per_s": 90},
                            "arm": "0",
                        },
                        {
                            "settings": {"client.processes": 8},
                            "signals": {"client_requests_per_s": 400},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "load_generator_bound",
        id="more processes of the tool get more of the server: the load tool",
    ),
    pytest.param(
        {"signals": {"client_itl_mean_s": 0.12, "itl_mean_s": 0.02, "requests_waiting": 0}},
        "load_generator_bound",
        id="tokens come far later at the client than they leave the server: the load tool",
    ),
    pytest.param(
        {
            "signals": {
                "client_e2e_mean_s": 5,
                "e2e_mean_s": 4.9,
                "requests_waiting": 50,
                "gpu_util_ratio": 0.99,
                "client_process_cpu_ratio": 0.95,
            }
        },
        None,
        id="the server is saturated and the client sees no more than it: not the load tool",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"client.connection_reuse": False},
                            "signals": {"client_ttft_mean_s": 1.4},
                            "arm": "0",
                        },
                        {
                            "settings": {"client.connection_reuse": True},
                            "signals": {"client_ttft_mean_s": 0.2},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "load_generator_bound",
        id="connections that are kept make the server seem faster: the load tool",
    ),
    pytest.param(
        {"signals": {"client_process_cpu_ratio": [1.0, 0.2], "requests_waiting": 0}},
        "load_generator_bound",
        id="one process of the tool fills a core while nothing waits: the load tool",
    ),
    pytest.param(
        {
            "topology": {"proxies": ["nginx"]},
            "signals": {"client_ttft_mean_s": 2, "ttft_mean_s": 0.2, "requests_waiting": 0},
        },
        None,
        id="late answers through a proxy may be the proxy's: not enough evidence",
    ),
    pytest.param(
        {
            "settings": {"client.tool": "jmeter"},
            "comparisons": [
                {
                    "arms": [
                        {
                            "workload": {"concurrency": 8},
                            "signals": {"gpu_util_ratio": 0.9},
                            "arm": "0",
                        },
                        {
                            "workload": {"concurrency": 64},
                            "signals": {"gpu_util_ratio": 0.6},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "load_generator_bound",
        id="the GPU does less as the tool adds concurrency: the load tool",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
