"""Prefix caches that cannot work: off, or with blocks that are too long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {"settings": {"enable_prefix_caching": False}, "workload": {"multi_turn": True}},
        "prefix_cache_disabled",
        id="the cache is off and conversations come back: off",
    ),
    pytest.param(
        {"settings": {"enable_prefix_caching": False}, "workload": {"shared_prefix_ratio": 0.7}},
        "prefix_cache_disabled",
        id="the cache is off and most of each prompt is shared: off",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"enable_prefix_caching": False},
                            "signals": {"ttft_mean_s": 2},
                            "current": True,
                            "arm": "0",
                        },
                        {
                            "settings": {"enable_prefix_caching": True},
                            "signals": {"ttft_mean_s": 0.3},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "prefix_cache_disabled",
        id="the current arm without the cache is slower: off",
    ),
    pytest.param(
        {
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
                            "signals": {"throughput_rel": 2.1},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "prefix_cache_disabled",
        id="the arm with the cache has twice the throughput: off",
    ),
    pytest.param(
        {
            "engine": {"name": "sglang"},
            "logs": ["server_args=ServerArgs(model_path='x', disable_radix_cache=True, tp_size=1)"],
            "workload": {"multi_turn": True},
        },
        "prefix_cache_disabled",
        id="the start-up log says that the radix cache is disabled: off",
    ),
    pytest.param(
        {
            "workload": {"shared_prefix_tokens": 4000, "isl_tokens": 5000},
            "signals": {"prefix_cache_queries_tokens": 0, "prompt_tokens_per_s": 9000},
        },
        "prefix_cache_disabled",
        id="prompts are computed and no token is ever looked up: off",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm", "variant": "v0"},
            "settings": {"enable_prefix_caching": None},
            "workload": {"multi_turn": True},
        },
        "prefix_cache_disabled",
        id="the first generation has it off by default: off",
    ),
    pytest.param(
        {
            "settings": {"enable_prefix_caching": False},
            "workload": {"shared_prefix_tokens": {"min": 1000}, "prefix_groups": 4},
        },
        "prefix_cache_disabled",
        id="the cache is off and groups share long heads: off",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm"},
            "model": {"architecture": ["hybrid"]},
            "logs": [
                "INFO Setting attention block size to 1600 tokens to ensure that attention "
                "page size is >= mamba page size."
            ],
            "workload": {"shared_prefix_tokens": 900},
            "signals": {"prefix_cache_hit_ratio": 0},
        },
        "prefix_shorter_than_block",
        id="the log names a block above the shared head: blocks too long",
    ),
    pytest.param(
        {
            "settings": {"block_size": 8320, "max_model_len": 4096, "enable_prefix_caching": True},
            "signals": {"prefix_cache_hits_tokens": 0, "prefix_cache_queries_tokens": 10608},
        },
        "prefix_shorter_than_block",
        id="no prompt can fill a block: blocks too long",
    ),
    pytest.param(
        {
            "settings": {"block_size": 8320, "enable_prefix_caching": True},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"max_model_len": 4096},
                            "signals": {"prefix_cache_hit_ratio": 0},
                            "arm": "0",
                        },
                        {
                            "settings": {"max_model_len": 16384},
                            "signals": {"prefix_cache_hit_ratio": 0.43},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "prefix_shorter_than_block",
        id="hits come only with a context above the block: blocks too long",
    ),
    pytest.param(
        {
            "settings": {"block_size": 1024, "enable_prefix_caching": True},
            "workload": {"isl_tokens": 700, "multi_turn": True},
            "signals": {"prefix_cache_hit_ratio": 0},
        },
        "prefix_shorter_than_block",
        id="conversations shorter than a block: blocks too long",
    ),
    pytest.param(
        {
            "settings": {"block_size": 1024, "enable_prefix_caching": True},
            "workload": {"isl_tokens": 2000, "shared_prefix_tokens": 1900},
            "signals": {"prefix_cache_hit_ratio": 0.512},
        },
        "prefix_shorter_than_block",
        id="half of the shared head lies above the last block: blocks too long",
    ),
    pytest.param(
        {
            "settings": {"block_size": 1024, "enable_prefix_caching": True},
            "workload": {"isl_tokens": 700, "shared_prefix_tokens": 0},
            "signals": {"prefix_cache_hit_ratio": 0},
        },
        None,
        id="unique prompts lose nothing by long blocks",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
