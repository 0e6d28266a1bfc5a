"""Triton's counters by model, and what each model of a repository does."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.triton_roles import triton_roles
from tests.support.engine_pages import facts_of


def page(counts: dict[str, int], queued_us: dict[str, int]) -> str:
    """Executions and queueing by model."""
    return "".join(
        f'nv_inference_exec_count{{model="{model}",version="1"}} {count}\n'
        f'nv_inference_queue_duration_us{{model="{model}",version="1"}} {queued_us[model]}\n'
        f'nv_inference_request_success{{model="{model}",version="1"}} {count}\n'
        f'nv_inference_request_failure{{model="{model}",version="1"}} 0\n'
        for model, count in counts.items()
    )


def test_executions_and_queueing_of_the_window_by_role() -> None:
    models = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")
    before = page(dict.fromkeys(models, 100), dict.fromkeys(models, 1_000_000))
    after = page(
        {"ensemble": 120, "preprocessing": 120, "tensorrt_llm": 120, "postprocessing": 4100},
        {
            "ensemble": 1_000_000,
            "preprocessing": 1_250_000,
            "tensorrt_llm": 1_000_000,
            "postprocessing": 61_000_000,
        },
    )
    signals = facts_of(before, after, step_s=10.0)["signals"]
    assert signals["triton_exec_infer_count"] == 20
    assert signals["triton_exec_postprocess_count"] == 4000
    assert signals["triton_queue_preprocess_s"] == pytest.approx(0.25)
    assert signals["triton_queue_postprocess_s"] == pytest.approx(60)
    assert signals["requests_completed_count"] == 20
    assert signals["requests_per_s"] == 2
    assert signals["requests_failed_per_s"] == 0


def test_roles_by_the_names_of_the_templates() -> None:
    names = ["ensemble", "preprocessing", "tensorrt_llm", "tensorrt_llm_bls", "postprocessing"]
    assert triton_roles(names) == {
        "ensemble": "frame",
        "preprocessing": "preprocess",
        "tensorrt_llm": "engine",
        "tensorrt_llm_bls": "frame",
        "postprocessing": "postprocess",
    }


def test_a_detokeniser_is_no_tokeniser() -> None:
    assert triton_roles(["tokenizer", "detokenizer", "vllm_model"]) == {
        "tokenizer": "preprocess",
        "detokenizer": "postprocess",
        "vllm_model": "engine",
    }


def test_roles_by_place_among_the_steps_of_an_ensemble() -> None:
    roles = triton_roles(
        ["front", "a", "b", "c"],
        backends={"front": "ensemble", "b": "tensorrtllm"},
        steps=["a", "b", "c"],
    )
    assert roles == {"front": "frame", "a": "preprocess", "b": "engine", "c": "postprocess"}


def test_the_only_model_left_is_the_engine() -> None:
    assert triton_roles(["mixtral"]) == {"mixtral": "engine"}
    assert triton_roles(["mixtral", "other"]) == {}


def test_settings_of_the_batch_manager() -> None:
    text = (
        'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="t"} 64\n'
        'nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type="request_count"} 4\n'
        "nv_trt_llm_disaggregated_serving_metrics"
        '{disaggregated_serving_type="kv_cache_transfer_ms"} 1000\n'
    )
    document = facts_of(text)
    assert document["settings"] == {"max_num_seqs": 512, "block_size": 64}
    assert document["signals"]["kv_transfer_s"] == pytest.approx(0.25)
