"""Metrics pages of real engines (MILEAGE_DATA_DIR): what is read from each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.scrape.reading import read


@pytest.mark.parametrize(
    ("file", "kind", "figures"),
    [
        pytest.param(
            "vllm_v0_datadog_fixture.txt",
            "vllm",
            {
                "running": 0,
                "waiting": 0,
                "kv_cache_usage_ratio": 0.0,
                "kv_tokens_max": 7281 * 16,
                "preemptions_total": 0.0,
                "prompt_tokens_total": 5.0,
                "output_tokens_total": 7.0,
            },
            id="vLLM V0 of 2024",
        ),
        pytest.param(
            "vllm_0.8_issue_excerpt.txt",
            "vllm",
            {"running": 0, "waiting": 0, "kv_cache_usage_ratio": 0.0},
            id="vLLM 0.8, an excerpt",
        ),
        pytest.param(
            "vllm_0.10.0_issue_excerpt.txt",
            "vllm",
            {
                "kv_cache_usage_ratio": 9.75010481363281e-06,
                "prefix_cache_hit_tokens_total": 0.0,
                "prefix_cache_query_tokens_total": 32.0,
            },
            id="vLLM 0.10, old and new names side by side",
        ),
        pytest.param(
            "vllm_cache_config_info_0.8_repo.txt",
            "vllm",
            {"kv_tokens_max": 573 * 16},
            id="vLLM, the size of the cache alone",
        ),
        pytest.param(
            "sglang_docs_production_metrics.txt",
            "sglang",
            {
                "running": 162,
                "waiting": 2826,
                "kv_cache_usage_ratio": 0.28,
                "prefix_cache_query_tokens_total": 8128902.0,
                "prefix_cache_hit_ratio": 0.007507552643049313,
                "prompt_tokens_total": 8128902.0,
                "output_tokens_total": 7557572.0,
            },
            id="SGLang, overloaded",
        ),
        pytest.param(
            "sglang_0.5.1_issue13485.txt",
            "sglang",
            {"running": 1, "kv_cache_usage_ratio": 0.0},
            id="SGLang 0.5.1, an excerpt",
        ),
        pytest.param(
            "sglang_old_names_pr1461.txt",
            "sglang",
            {
                "waiting": 0,
                "kv_cache_usage_ratio": 0.0,
                "prefix_cache_hit_ratio": 0.8758777633289988,
            },
            id="SGLang of 2024: old names, percent",
        ),
        pytest.param(
            "triton_trtllm_backend_readme.txt",
            "triton",
            {
                "running": 1,
                "waiting": 1,
                "running_max": 512,
                "kv_cache_usage_ratio": 0.4875,
                "kv_tokens_max": 6239 * 64,
            },
            id="Triton with TensorRT-LLM",
        ),
        pytest.param(
            "trtllm_prom_pr5560.txt",
            "trtllm",
            {
                "running": 1,
                "waiting": 0,
                "prompt_tokens_total": 201121.0,
                "output_tokens_total": 81896.0,
            },
            id="trtllm-serve, the names first proposed",
        ),
        pytest.param(
            "llamacpp_ik695.txt",
            "llamacpp",
            {"prompt_tokens_total": 6886.0, "output_tokens_total": 3469.0},
            id="llama.cpp of 2025, an excerpt",
        ),
    ],
)
@pytest.mark.parametrize("told", [True, False], ids=["told the kind", "must detect the kind"])
def test_a_real_page(
    data_dir: Path, file: str, kind: str, figures: dict[str, Any], told: bool
) -> None:
    body = (data_dir / "metrics" / file).read_bytes()
    reading = read(kind if told else "openai", body, "r", 5.0)
    fields = msgspec.structs.asdict(reading.view)
    seen = {k: v for k, v in fields.items() if v is not None and k not in ("replica", "observed_s")}
    assert reading.kind == kind
    assert seen == figures
    assert reading.figures == len(figures)


@pytest.mark.parametrize("file", ["dcgm_t4_datadog_fixture.txt", "dcgm_mig_a30_issue317.txt"])
def test_a_page_of_another_exporter_has_no_figures(data_dir: Path, file: str) -> None:
    reading = read("openai", (data_dir / "metrics" / file).read_bytes(), "r", 5.0)
    assert (reading.kind, reading.figures, reading.truncated) == (None, 0, False)
