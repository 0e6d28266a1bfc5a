"""Pages and logs of real engines (MILEAGE_DATA_DIR): which facts are read from each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mileage.doctor.collect.startup_log import log_facts
from tests.support.engine_pages import checked, facts_of

PAGES: dict[str, dict[str, Any]] = {
    "vllm_v0_datadog_fixture.txt": {
        "engine.name": "vllm",
        "engine.variant": "v0",
        "model.name": "facebook/opt-125m",
        "settings.block_size": 16,
        "settings.enable_prefix_caching": False,
        "settings.swap_space": 4,
        "workload.isl_tokens": 5,
        "workload.osl_tokens": 7,
        "signals.kv_cache_capacity_tokens": 116_496,
        "signals.ttft_mean_s": pytest.approx(0.3133, abs=1e-4),
        "signals.ttft_p99_s": {"min": 0.25, "max": 0.5},
        "signals.requests_completed_count": 1,
    },
    "vllm_cache_config_info_0.8_repo.txt": {
        "settings.gpu_memory_utilization": 0.82,
        "settings.enable_prefix_caching": True,
        "signals.kv_cache_capacity_tokens": 9168,
    },
    "vllm_0.10.0_issue_excerpt.txt": {
        "engine.variant": "v1",
        "model.name": "zai-org/GLM-4.5",
        "signals.prefix_cache_queries_tokens": 32,
        "signals.prefix_cache_hit_ratio": 0,
    },
    "sglang_docs_production_metrics.txt": {
        "engine.name": "sglang",
        "signals.requests_running": 162,
        "signals.requests_waiting": 2826,
        "signals.ttft_mean_s": pytest.approx(213.65, abs=0.01),
        "signals.ttft_p50_s": {"min": 30.0},
        "signals.itl_p50_s": {"min": 0.075, "max": 0.1},
        "signals.output_tokens_per_s": pytest.approx(86.508, abs=1e-3),
    },
    "sglang_old_names_pr1461.txt": {
        "signals.prefix_cache_hit_ratio": pytest.approx(0.8759, abs=1e-4)
    },
    "triton_trtllm_backend_readme.txt": {
        "engine.name": "triton",
        "settings.max_num_seqs": 512,
        "settings.block_size": 64,
        "signals.kv_cache_capacity_tokens": 399_296,
        "signals.kv_cache_usage_ratio": 0.4875,
    },
    "trtllm_prom_pr5560.txt": {
        "engine.name": "tensorrt-llm",
        "signals.requests_running": 1,
        "signals.requests_completed_count": 707,
    },
    "llamacpp_ik695.txt": {
        "engine.name": "llama.cpp",
        "signals.itl_mean_s": pytest.approx(1.0217, abs=1e-4),
    },
}
LOGS: dict[str, dict[str, Any]] = {
    "vllm_kv_capacity_lines_10517.log": {
        "settings.max_model_len": 29_000,
        "settings.gpu_memory_utilization": 0.9,
        "signals.kv_cache_capacity_tokens": 23_648,
        "signals.kv_cache_capacity_gib": 2.89,
        "signals.kv_max_concurrency": 0.82,
    },
    "startup_logs_vllm.log": {
        "signals.kv_cache_capacity_tokens": 613_024,
        "signals.startup_graph_capture_s": 11_412,
        "signals.startup_engine_init_s": 11_629.91,
        "signals.oom_count": {"min": 1},
        "signals.alloc_failed_gb": pytest.approx(1.868, abs=1e-3),
    },
    "engine_logs_vllm_v0.log": {
        "settings.preemption_mode": "recompute",
        "settings.tokenizer_mode": "slow",
        "signals.preemptions_count": {"min": 101},
    },
    "engine_logs_vllm_v1.log": {
        "engine.variant": "v1",
        "signals.requests_running_max": [629, 31],
        "signals.prefix_cache_hit_ratio": [0.825, 0.66],
    },
    "engine_logs_sglang.log": {
        "engine.name": "sglang",
        "signals.graph_replay_ratio": 1,
        "signals.prefix_cache_queries_tokens": 202,
    },
    "triton_trtllm_stats_7676.log": {"settings.max_num_seqs": 8, "signals.requests_running": 8},
}


def of(document: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The expected facts as the document has them."""
    parts = (fact.partition(".") for fact in expected)
    return {f"{section}.{name}": document.get(section, {}).get(name) for section, _, name in parts}


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, data_dir: Path) -> None:
    document = facts_of((data_dir / "metrics" / name).read_bytes())
    assert of(document, PAGES[name]) == PAGES[name]


@pytest.mark.parametrize("name", LOGS)
def test_logs(name: str, data_dir: Path) -> None:
    text = (data_dir / "metrics" / name).read_text("utf-8")
    assert of(checked(log_facts(text.splitlines())), LOGS[name]) == LOGS[name]
