"""What each kind of engine's page says: its names by version, its label forms, its units."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.replica import ReplicaView
from mileage.scrape.reading import Reading, read, view


def known(kind: str, text: str | bytes) -> dict[str, Any]:
    """The figures that are known of a page."""
    body = text if isinstance(text, bytes) else text.encode()
    fields = msgspec.structs.asdict(view(kind, body, "r", 5.0))
    assert (fields.pop("replica"), fields.pop("observed_s")) == ("r", 5.0)
    return {name: value for name, value in fields.items() if value is not None}


VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="100"} 1.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1200.0
vllm:generation_tokens_total{engine="0",model_name="m"} 340.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 99.0
"""
VLLM_FIGURES = {
    "running": 3,
    "waiting": 4,
    "kv_cache_usage_ratio": 0.25,
    "kv_tokens_max": 1600,
    "prefix_cache_hit_tokens_total": 400.0,
    "prefix_cache_query_tokens_total": 1000.0,
    "preemptions_total": 2.0,
    "prompt_tokens_total": 1200.0,
    "output_tokens_total": 340.0,
}


def test_vllm() -> None:
    assert known("vllm", VLLM) == VLLM_FIGURES


def test_names_that_a_relay_rewrote_without_colons() -> None:
    assert known("vllm", VLLM.replace("vllm:", "vllm_")) == VLLM_FIGURES
    assert known("trtllm", "trtllm:num_requests_running 2\n") == {"running": 2}


BLOCKS = "in terms of number of queried blocks."
TOKENS = "in terms of number of queriedtokens."


@pytest.mark.parametrize(
    ("help_text", "queries"),
    [
        pytest.param(BLOCKS, 160.0, id="0.8 counted blocks: times the block size"),
        pytest.param(TOKENS, 10.0, id="0.9 counts tokens under the same name"),
        pytest.param("", None, id="without a HELP text the unit is unknown"),
    ],
)
def test_the_unit_of_vllm_prefix_counters(help_text: str, queries: float | None) -> None:
    name = "vllm:gpu_prefix_cache_queries_total"
    text = f'# HELP {name} GPU prefix cache queries, {help_text}\n{name}{{model_name="m"}} 10\n'
    text += 'vllm:cache_config_info{block_size="16",num_gpu_blocks="573"} 1\n'
    assert known("vllm", text).get("prefix_cache_query_tokens_total") == queries


def test_blocks_without_a_block_size_are_no_tokens() -> None:
    name = "vllm:gpu_prefix_cache_hits_total"
    assert known("vllm", f"# HELP {name} {BLOCKS}\n{name} 10\n") == {}


def test_the_new_names_of_vllm_count_where_both_are_there() -> None:
    text = "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.1\n"
    assert known("vllm", text) == {"kv_cache_usage_ratio": 0.5}
    assert known("vllm", "vllm:gpu_cache_usage_perc 0.1\n") == {"kv_cache_usage_ratio": 0.1}


def test_the_size_that_vllm_tells_in_tokens_counts_before_its_blocks() -> None:
    labels = 'block_size="16",engine="0",kv_cache_size_tokens="{}",num_gpu_blocks="100"'
    for size, tokens in (("1200", 1200), ("None", 1600)):
        text = f"vllm:cache_config_info{{{labels.format(size)}}} 1\n"
        assert known("vllm", text) == {"kv_tokens_max": tokens}


def test_a_vllm_that_has_not_sized_its_cache_yet() -> None:
    text = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n'
    assert known("vllm", text) == {}


def test_the_hit_rate_of_vllm_v0_is_minus_one_while_it_has_none() -> None:
    assert known("vllm", "vllm:gpu_prefix_cache_hit_rate -1\n") == {}
    assert known("vllm", "vllm:gpu_prefix_cache_hit_rate 0.5\n") == {"prefix_cache_hit_ratio": 0.5}


SGLANG = """
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 8.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.5
sglang:max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5000.0
sglang:cache_hit_rate{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.4
sglang:gen_throughput{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 86.5
sglang:num_retracted_requests_total{engine_type="unified",model_name="m",tp_rank="0"} 3.0
sglang:prompt_tokens_total{model_name="m"} 900.0
sglang:generation_tokens_total{model_name="m"} 800.0
sglang:cached_tokens_total{model_name="m"} 300.0
"""
SGLANG_FIGURES = {
    "running": 7,
    "waiting": 8,
    "kv_cache_usage_ratio": 0.5,
    "kv_tokens_max": 5000,
    "prefix_cache_hit_tokens_total": 300.0,
    "prefix_cache_query_tokens_total": 900.0,
    "prefix_cache_hit_ratio": 0.4,
    "preemptions_total": 3.0,
    "prompt_tokens_total": 900.0,
    "output_tokens_total": 800.0,
}


def test_sglang() -> None:
    assert known("sglang", SGLANG) == SGLANG_FIGURES


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        pytest.param("sglang:cache_hit_rate 0.0075", 0.0075, id="a ratio since 2025"),
        pytest.param("sglang:cache_hit_rate 87.5", 0.875, id="above 1 it can only be percent"),
        pytest.param(
            "sglang:queue_req 0\nsglang:cache_hit_rate 0.8", 0.008, id="a name of 2024: percent"
        ),
        pytest.param("sglang:cache_hit_rate 150", None, id="no ratio, no percentage"),
        pytest.param("sglang:cache_hit_rate -1", None, id="negative"),
        pytest.param("sglang:cache_hit_rate NaN", None, id="not a number"),
    ],
)
def test_sglang_hit_rate(text: str, ratio: float | None) -> None:
    assert known("sglang", text + "\n").get("prefix_cache_hit_ratio") == ratio


def test_sglang_usage_and_size_from_other_series() -> None:
    text = "sglang:num_used_tokens 250\nsglang:max_total_num_tokens 1000\n"
    assert known("sglang", text) == {"kv_cache_usage_ratio": 0.25, "kv_tokens_max": 1000}
    info = 'sglang:cache_config_info{num_pages="50",page_size="64"} 1\n'
    assert known("sglang", info) == {"kv_tokens_max": 3200}


@pytest.mark.parametrize(
    ("sources", "tokens"),
    [
        pytest.param({"device": 100, "host": 20}, 120.0, id="by source: added up"),
        pytest.param({"total": 120}, 120.0, id="the total alone"),
        pytest.param({"device": 100, "host": 20, "total": 120}, 120.0, id="not counted twice"),
    ],
)
def test_sglang_cached_tokens_by_source(sources: dict[str, int], tokens: float) -> None:
    text = "".join(
        f'sglang:cached_tokens_total{{cache_source="{source}",model_name="m"}} {value}\n'
        for source, value in sources.items()
    )
    assert known("sglang", text) == {"prefix_cache_hit_tokens_total": tokens}


def triton(rows: dict[str, float]) -> str:
    """Series of Triton's TensorRT-LLM backend; a key is the value of the label that tells them."""
    text = ""
    for key, value in rows.items():
        is_request = key in ("waiting", "scheduled", "active", "context", "max_requests")
        name = "nv_trt_llm_request_metrics" if is_request else "nv_trt_llm_kv_cache_block_metrics"
        label = "request_type" if is_request else "kv_cache_block_type"
        kept = "max" if key == "max_requests" else key
        text += f'{name}{{model="tensorrt_llm",{label}="{kept}",version="1"}} {value}\n'
    return text


def test_triton_with_tensorrt_llm() -> None:
    rows = {"waiting": 2, "scheduled": 3, "active": 5, "context": 1, "max_requests": 512}
    blocks = {"fraction": 0.5, "tokens_per": 64, "used": 5, "free": 5, "max": 10, "reused": 4}
    assert known("triton", triton(rows | blocks)) == {
        "running": 3,
        "waiting": 2,
        "running_max": 512,
        "kv_cache_usage_ratio": 0.5,
        "kv_tokens_max": 640,
        "prefix_cache_hit_tokens_total": 256.0,
    }


def test_triton_before_it_had_the_fraction_and_scheduled_requests() -> None:
    figures = known("triton", triton({"active": 5, "used": 1, "max": 4}))
    assert figures == {"running": 5, "kv_cache_usage_ratio": 0.25}


def test_triton_with_the_vllm_backend() -> None:
    text = VLLM.replace('engine="0",model_name="m"', 'model="m",version="1"')
    figures = known("triton", text + 'nv_inference_pending_request_count{model="m"} 99\n')
    assert figures == VLLM_FIGURES


def test_the_queue_of_triton_itself_where_its_backend_has_none() -> None:
    text = 'nv_inference_pending_request_count{model="a",version="1"} 2\n'
    assert known("triton", text + text.replace('"a"', '"b"')) == {"waiting": 4}


def test_trtllm_serve_text() -> None:
    text = """
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 2.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 1.0
trtllm_max_num_active_requests{engine_type="trtllm",model_name="m"} 256.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.75
trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="m"} 1000.0
trtllm_kv_cache_tokens_per_block{engine_type="trtllm",model_name="m"} 32.0
trtllm_kv_cache_hit_rate{engine_type="trtllm",model_name="m"} 0.25
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="m"} 500.0
trtllm_prompt_cached_tokens_total{engine_type="trtllm",model_name="m"} 100.0
trtllm_generation_tokens_total{engine_type="trtllm",model_name="m"} 60.0
"""
    assert known("trtllm", text) == {
        "running": 2,
        "waiting": 1,
        "running_max": 256,
        "kv_cache_usage_ratio": 0.75,
        "kv_tokens_max": 32000,
        "prefix_cache_hit_tokens_total": 100.0,
        "prefix_cache_query_tokens_total": 500.0,
        "prefix_cache_hit_ratio": 0.25,
        "prompt_tokens_total": 500.0,
        "output_tokens_total": 60.0,
    }


RECORD = {
    "iter": 9,
    "iterLatencyMS": 12.5,
    "numActiveRequests": 2,
    "numQueuedRequests": 1,
    "maxNumActiveRequests": 64,
    "kvCacheStats": {
        "usedNumBlocks": 30,
        "freeNumBlocks": 90,
        "maxNumBlocks": 120,
        "tokensPerBlock": 32,
        "cacheHitRate": 0.125,
    },
    "inflightBatchingStats": {"numContextRequests": 1, "numGenRequests": 1},
}
RECORD_FIGURES = {
    "running": 2,
    "waiting": 1,
    "running_max": 64,
    "kv_cache_usage_ratio": 0.25,
    "kv_tokens_max": 3840,
    "prefix_cache_hit_ratio": 0.125,
}


def test_trtllm_serve_json_has_its_newest_record_last() -> None:
    old = {**RECORD, "numActiveRequests": 50}
    assert known("trtllm", msgspec.json.encode([old, RECORD])) == RECORD_FIGURES
    assert known("trtllm", b" \n" + msgspec.json.encode(RECORD)) == RECORD_FIGURES


@pytest.mark.parametrize(
    ("body", "figures"),
    [
        pytest.param(b"[]", {}, id="idle: nothing since the last time"),
        pytest.param(b"[1, null]", {}, id="no record"),
        pytest.param(b'[{"numActiveRequests": true}]', {}, id="a boolean is no count"),
        pytest.param(b'[{"numActiveRequests": "2"}]', {}, id="nor is text"),
        pytest.param(
            b'[{"numActiveRequests": -1, "numQueuedRequests": 1}]', {"waiting": 1}, id="-1"
        ),
        pytest.param(b'[{"numActiveRequests": 1' + b"0" * 400 + b"}]", {}, id="a huge integer"),
        pytest.param(
            b'[{"numActiveRequests": 2, "kvCacheStats": null}]', {"running": 2}, id="null"
        ),
        pytest.param(
            b'[{"kvCacheStats": {"usedNumBlocks": 0, "maxNumBlocks": 0, "tokensPerBlock": 32}}]',
            {"kv_tokens_max": 0},
            id="no blocks: no share of them",
        ),
        pytest.param(b'[{"numActiveRequests": 2}', {}, id="half of it"),
        pytest.param(b"[" * 100_000, {}, id="deep nesting"),
    ],
)
def test_odd_json(body: bytes, figures: dict[str, Any]) -> None:
    assert known("trtllm", body) == figures


def test_llamacpp_counts_prompt_tokens_without_the_cached_ones() -> None:
    text = """
llamacpp:prompt_tokens_total 35
llamacpp:prompt_tokens_cached_total 33
llamacpp:tokens_predicted_total 16
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:n_busy_slots_per_decode 1.5
"""
    assert known("llamacpp", text) == {
        "running": 1,
        "waiting": 2,
        "prefix_cache_hit_tokens_total": 33.0,
        "prefix_cache_query_tokens_total": 68.0,
        "prompt_tokens_total": 68.0,
        "output_tokens_total": 16.0,
    }


def test_llamacpp_of_2024() -> None:
    text = "llamacpp:kv_cache_usage_ratio 0.5\nllamacpp:prompt_tokens_total 10\n"
    assert known("llamacpp", text) == {"kv_cache_usage_ratio": 0.5, "prompt_tokens_total": 10.0}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("vllm:num_requests_running 1", "vllm", id="vLLM"),
        pytest.param("sglang:num_running_reqs 1", "sglang", id="SGLang"),
        pytest.param("trtllm_num_requests_running 1", "trtllm", id="trtllm-serve"),
        pytest.param("pytrtllm:num_requests_running 1", "trtllm", id="its first prefix"),
        pytest.param('[{"numActiveRequests": 1}]', "trtllm", id="its JSON"),
        pytest.param(triton({"scheduled": 1}), "triton", id="Triton"),
        pytest.param(
            "vllm:num_requests_running 1\nnv_inference_pending_request_count 0",
            "triton",
            id="Triton with vLLM inside",
        ),
        pytest.param("llamacpp:requests_processing 1", "llamacpp", id="llama.cpp"),
        pytest.param("python_gc_objects_collected_total 1", None, id="none of them"),
        pytest.param("", None, id="nothing"),
        pytest.param("<html>", None, id="a web page"),
    ],
)
def test_an_unknown_engine_is_detected(text: str, kind: str | None) -> None:
    reading = read("openai", text.encode(), "r", 5.0)
    assert reading.kind == kind
    assert reading.view.running == (None if kind is None else 1)


def test_a_page_of_another_kind_than_configured_is_told_not_guessed() -> None:
    reading = read("vllm", SGLANG.encode(), "r", 5.0)
    assert (reading.kind, reading.figures) == ("sglang", 0)
    assert reading.view == ReplicaView(replica="r", observed_s=5.0)


def test_a_reading_counts_bad_lines_and_known_figures() -> None:
    text = "vllm:num_requests_running 1\nvllm:num_requests_waiting 1 2 3\nother{ 5\n"
    assert read("vllm", text.encode(), "r", 5.0) == Reading(
        view=ReplicaView(replica="r", observed_s=5.0, running=1),
        kind="vllm",
        figures=1,
        lines_bad=1,
    )


def test_a_page_with_too_many_series_says_nothing() -> None:
    text = "".join(f'vllm:num_requests_running{{pod="{i}"}} 1\n' for i in range(20_001))
    reading = read("vllm", text.encode(), "r", 5.0)
    assert (reading.truncated, reading.figures) == (True, 0)
