"""Deployments that look odd, and with which nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.document import diagnose_document
from tests.support.doctor_answers import first_cause, loud_causes

WELL = [
    pytest.param(
        {
            "engine": {"name": "vllm"},
            "hardware": {"gpu": "Intel Xeon Platinum 8480", "cpus": 112},
            "settings": {"enforce_eager": True},
            "signals": {"requests_running": 8, "itl_p50_s": 0.06, "cpu_util_ratio": 0.97},
        },
        id="no graphs where a processor stands for the card",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "version": "0.10.0+cpu"},
            "settings": {"enforce_eager": True},
            "signals": {"requests_running": 8, "itl_p50_s": 0.06, "cpu_util_ratio": 0.97},
        },
        id="no graphs in a build for CPUs",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm"},
            "settings": {"proxy.max_parallel_requests": 64, "max_num_seqs": 64},
            "workload": {"concurrency": 70},
            "topology": {"proxies": ["litellm"]},
            "signals": {
                "proxy_requests_in_flight_max": 64,
                "requests_running": 64,
                "requests_waiting": 0,
                "kv_cache_usage_ratio": 0.9,
            },
        },
        id="a proxy's cap that fills all slots of the engine",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm"},
            "model": {"weights_gib": 640},
            "settings": {"storage.weights_fs": "s3"},
            "signals": {"startup_weights_s": 120, "startup_compile_s": 20},
        },
        id="weights that take long because there are many",
    ),
    pytest.param(
        {
            "engine": {"name": "sglang"},
            "settings": {"router.policy": "cache_aware", "router.load_term": True},
            "topology": {"replicas": 4},
            "signals": {
                "requests_waiting": [0, 1, 0, 0],
                "kv_cache_usage_ratio": [0.6, 0.62, 0.6, 0.58],
            },
        },
        id="one request that has just come to one of four replicas",
    ),
]


@pytest.mark.parametrize("facts", WELL)
def test_nothing_is_found(facts: dict[str, Any]) -> None:
    assert loud_causes(facts) == []


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"settings": {"proxy.http_library": "aiohttp"}}, id="its library"),
        pytest.param({"settings": {"proxy.max_connections": 100}}, id="its pool"),
    ],
)
def test_what_is_known_of_a_proxy_tells_that_there_is_one(known: dict[str, Any]) -> None:
    facts = known | {
        "engine": {"name": "vllm"},
        "workload": {"concurrency": 400},
        "signals": {
            "proxy_requests_in_flight_max": 100,
            "requests_running": 100,
            "requests_waiting": 0,
        },
    }
    assert first_cause(facts) == "proxy_concurrency_cap"


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("vLLM", "vllm"),
        ("SGL", "sglang"),
        ("trtllm", "tensorrt-llm"),
        ("TensorRT_LLM", "tensorrt-llm"),
        ("llama_cpp", "llama.cpp"),
    ],
)
def test_an_engine_by_another_name_gets_the_same_answer(name: str, usual: str) -> None:
    def told(engine: str) -> list[tuple[str, str, float]]:
        facts = {
            "engine": {"name": engine},
            "settings": {"max_num_seqs": 64},
            "signals": {
                "requests_running": 64,
                "requests_waiting": 210,
                "kv_cache_usage_ratio": 0.33,
            },
        }
        return [(f.cause, f.remedy, f.confidence) for f in diagnose_document(facts).findings]

    assert told(name) == told(usual) != []


def test_ranks_of_attention_are_told_with_the_switch_that_makes_them() -> None:
    facts = {
        "engine": {"name": "sgl"},
        "model": {"architecture": ["moe", "mla"], "params_b": 671},
        "settings": {"tensor_parallel_size": 8, "data_parallel_size": 1},
        "signals": {"kv_cache_usage_ratio": 0.97, "requests_waiting": 30},
    }
    remedy = diagnose_document(facts).findings[0].remedy
    assert "--enable-dp-attention" in remedy
    assert "--dp-size 8" in remedy
