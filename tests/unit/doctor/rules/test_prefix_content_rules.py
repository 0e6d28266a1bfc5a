"""Prefix caches that find nothing: by the prompts' text, or by the engine's fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "workload": {"first_diff_token": 5, "identical_after_diff_ratio": 0.98},
            "signals": {"prefix_cache_hit_ratio": 0},
        },
        "volatile_prefix",
        id="prompts differ at once and are alike after that: changing text",
    ),
    pytest.param(
        {
            "workload": {"first_diff_token": 12, "isl_tokens": 4000, "shared_prefix_ratio": 0.9},
            "settings": {"enable_prefix_caching": True, "block_size": 16},
            "signals": {"prefix_cache_queries_tokens": 40000, "prefix_cache_hits_tokens": 0},
        },
        "volatile_prefix",
        id="prompts differ at once though nine tenths are shared: changing text",
    ),
    pytest.param(
        {
            "comparisons": [
                {
                    "arms": [
                        {
                            "workload": {"inter_turn_gap_s": 0.3},
                            "signals": {"prefix_cache_hit_ratio": 0.9},
                            "arm": "0",
                        },
                        {
                            "workload": {"inter_turn_gap_s": 5},
                            "signals": {"prefix_cache_hit_ratio": 0},
                            "arm": "1",
                        },
                    ]
                }
            ]
        },
        "volatile_prefix",
        id="hits come only while the head stays the same: changing text",
    ),
    pytest.param(
        {
            "workload": {"prefix_change_period_s": 1, "isl_tokens": 2000},
            "settings": {"enable_prefix_caching": True},
            "signals": {"prefix_cache_hit_ratio": 0.01},
        },
        "volatile_prefix",
        id="the head changes each second and nothing hits: changing text",
    ),
    pytest.param(
        {
            "workload": {"prefix_change_period_s": 60, "multi_turn": True, "inter_turn_gap_s": 90},
            "settings": {"enable_prefix_caching": True},
            "signals": {"prefix_cache_hit_ratio": 0.03},
        },
        "volatile_prefix",
        id="the head changes before the next turn comes: changing text",
    ),
    pytest.param(
        {
            "workload": {
                "prefix_change_period_s": 86400,
                "first_diff_token": 10,
                "isl_tokens": 3000,
                "multi_turn": True,
            },
            "signals": {"prefix_cache_hit_ratio": 0.85, "requests_waiting": 0},
        },
        None,
        id="the date changes once a day: nothing",
    ),
    pytest.param(
        {
            "workload": {
                "first_diff_token": 30,
                "identical_after_diff_ratio": 0.02,
                "isl_tokens": 900,
            },
            "settings": {"enable_prefix_caching": True},
            "signals": {"prefix_cache_hit_ratio": 0.03},
        },
        None,
        id="prompts that differ after the template and stay different: nothing",
    ),
    pytest.param(
        {
            "engine": {"name": "llama.cpp"},
            "workload": {
                "first_diff_token": 6,
                "identical_after_diff_ratio": 0.93,
                "isl_tokens": 300,
            },
            "signals": {
                "prefix_cache_hit_ratio": 0.02,
                "requests_running": 2,
                "requests_waiting": 0,
                "ttft_mean_s": 0.4,
                "engine_process_cpu_ratio": 1.9,
            },
        },
        "volatile_prefix",
        id="a watched embedded engine, a clock in the prompt: changing text",
    ),
    pytest.param(
        {
            "settings": {"enable_prefix_caching": True, "block_size": 16},
            "workload": {"shared_prefix_tokens": 3000},
            "signals": {"prefix_cache_queries_tokens": 30000, "prefix_cache_hits_tokens": 0},
        },
        "prefix_cache_engine_bug",
        id="thousands of shared tokens, small blocks, never a hit: the engine",
    ),
    pytest.param(
        {
            "settings": {"enable_prefix_caching": True},
            "model": {"architecture": ["dense"]},
            "workload": {"shared_prefix_tokens": 3000},
            "signals": {"prefix_cache_hit_ratio": 0},
        },
        "prefix_cache_engine_bug",
        id="the same with a ratio of hits and usual blocks: the engine",
    ),
    pytest.param(
        {
            "engine": {"name": "vllm"},
            "workload": {"shared_prefix_ratio": 0.9},
            "comparisons": [
                {
                    "arms": [
                        {
                            "engine": {"version": "1"},
                            "signals": {"prefix_cache_hit_ratio": 0.8, "ttft_mean_s": 0.2},
                            "arm": "0",
                        },
                        {
                            "engine": {"version": "2"},
                            "signals": {"prefix_cache_hit_ratio": 0, "ttft_mean_s": 1},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "prefix_cache_engine_bug",
        id="hits vanish with a version: the engine",
    ),
    pytest.param(
        {
            "workload": {"shared_prefix_tokens": 5000},
            "comparisons": [
                {
                    "arms": [
                        {
                            "settings": {"speculative.method": None},
                            "signals": {"prefix_cache_hit_ratio": 0.8},
                            "arm": "0",
                        },
                        {
                            "settings": {"speculative.method": "mtp"},
                            "signals": {"prefix_cache_hit_ratio": 0},
                            "arm": "1",
                        },
                    ]
                }
            ],
        },
        "prefix_cache_engine_bug",
        id="hits vanish with a drafter: the engine",
    ),
    pytest.param(
        {
            "engine": {"name": "llama.cpp"},
            "workload": {"multi_turn": True},
            "logs": [
                "slot update_slots: id 3 | task 3 | forcing full prompt re-processing due to "
                "lack of cache data (likely due to SWA)"
            ],
        },
        "prefix_cache_engine_bug",
        id="the engine says that it processes the whole prompt again: the engine",
    ),
    pytest.param(
        {
            "settings": {"enable_prefix_caching": True, "block_size": 16},
            "workload": {"shared_prefix_tokens": 8000, "prefix_groups": 500},
            "signals": {"prefix_cache_hit_ratio": 0, "kv_cache_capacity_tokens": 200000},
        },
        None,
        id="more shared text than the cache holds: nothing",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
