"""trtllm-serve's iteration records as facts."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.trtllm_iterations import iteration_facts
from tests.support.engine_pages import checked


def record(**changes: Any) -> dict[str, Any]:
    """One iteration."""
    return {
        "iterLatencyMS": 20.0,
        "numActiveRequests": 4,
        "numQueuedRequests": 1,
        "maxNumActiveRequests": 64,
        "maxNumTokensRuntime": 8192,
        "gpuMemUsage": 40_000_000_000,
        "inflightBatchingStats": {"numPausedRequests": 1},
        "kvCacheStats": {
            "maxNumBlocks": 1000,
            "usedNumBlocks": 600,
            "tokensPerBlock": 32,
            "reusedBlocks": 10,
            "missedBlocks": 20,
            "cacheHitRate": 0.33,
        },
    } | changes


def test_means_and_sums_over_all_iterations() -> None:
    later = {
        "maxNumBlocks": 1000,
        "usedNumBlocks": 800,
        "tokensPerBlock": 32,
        "reusedBlocks": 40,
        "missedBlocks": 30,
    }
    document = checked(iteration_facts([record(), record(iterLatencyMS=40.0, kvCacheStats=later)]))
    signals = document["signals"]
    assert signals["step_time_s"] == pytest.approx(0.03)
    assert signals["preemptions_count"] == 2
    assert signals["gpu_mem_used_gb"] == pytest.approx(40)
    assert signals["kv_cache_usage_ratio"] == pytest.approx(0.7)
    assert signals["kv_cache_capacity_tokens"] == 32_000
    assert signals["prefix_cache_hits_tokens"] == 30 * 32
    assert signals["prefix_cache_queries_tokens"] == 40 * 32
    assert signals["prefix_cache_hit_ratio"] == pytest.approx(0.75)
    assert document["settings"] == {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8192,
        "block_size": 32,
    }


def test_one_record_has_the_rate_that_the_engine_gives() -> None:
    signals = checked(iteration_facts([record()]))["signals"]
    assert signals["prefix_cache_hit_ratio"] == 0.33
    assert "prefix_cache_queries_tokens" not in signals


def test_a_zero_limit_is_not_known() -> None:
    document = iteration_facts([record(maxNumActiveRequests=0, maxNumTokensRuntime=0)])
    assert document["settings"] == {"block_size": 32}


@pytest.mark.parametrize("records", [[], ["x"], [{}], [{"kvCacheStats": 3}], [None, 4]])
def test_records_of_no_use_have_no_facts(records: list[Any]) -> None:
    assert checked(iteration_facts(records)) == {}
