"""An engine of each kind, watched over HTTP: what is asked, what is kept, what facts it gives."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord
from mileage.doctor.collect.merge_facts import MergedFacts, merge_facts
from mileage.scrape import doctor_engine
from mileage.scrape.doctor_engine import watch_engine
from tests.support.engine_pages import checked
from tests.support.engine_pages_over_http import Pages, TableEngine, VirtualTime

URL = "http://engine:8000"


def watch(
    pages: Pages, url: str = URL, authorization: str | None = None
) -> tuple[EngineRecord, TableEngine]:
    """The record of 30 s, and what was asked for."""
    time = VirtualTime()
    engine = TableEngine(pages, time)
    record = asyncio.run(
        watch_engine(
            url,
            window_s=30.0,
            authorization=authorization,
            ask=engine,
            clock=time.clock,
            wall=time.wall,
            sleep=time.sleep,
        )
    )
    return record, engine


def facts(record: EngineRecord) -> MergedFacts:
    """Facts of a record that went through a file."""
    again = msgspec.json.decode(msgspec.json.encode(record), type=EngineRecord)
    assert again == record
    merged = merge_facts(engine_facts(again))
    checked(merged.document)
    return merged


def vllm_metrics(now_s: float) -> str:
    """Ten tokens a second, four requests running."""
    return (
        'vllm:num_requests_running{engine="0",model_name="m"} 4\n'
        f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {now_s * 10}\n'
        'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1\n'
    )


VLLM: dict[str, Any] = {
    f"{URL}/metrics": vllm_metrics,
    f"{URL}/version": '{"version": "0.10.2"}',
    f"{URL}/v1/models": json.dumps(
        {
            "data": [
                {"id": "a", "parent": "m", "owned_by": "vllm"},
                {"id": "m", "parent": None, "owned_by": "vllm", "max_model_len": 8192},
            ]
        }
    ),
}


def test_vllm() -> None:
    record, _ = watch(VLLM)
    assert len(record.pages) == 31  # at once, each second, and at the end
    merged = facts(record)
    assert merged.document["engine"] == {"name": "vllm", "version": "0.10.2"}
    assert merged.document["model"] == {"name": "m"}
    assert merged.document["settings"] == {"block_size": 16, "max_model_len": 8192}
    assert merged.document["signals"]["output_tokens_per_s"] == pytest.approx(10)
    assert merged.sources["signals.output_tokens_per_s"] == f"metrics of {URL}"
    assert merged.sources["settings.max_model_len"] == f"{URL}/v1/models"
    assert record.missing["/props"] == "answered 404"


def test_sglang_with_its_secrets_left_out() -> None:
    info = {
        "model_path": "m",
        "tp_size": 2,
        "dp_size": 1,
        "api_key": "sk-123456789",
        "disable_radix_cache": True,
        "mem_fraction_static": 0.85,
        "quantization": None,
        "version": "0.5.3",
        "internal_states": [
            {
                "memory_usage": {"weight": 14.9, "kvcache": 40.5, "token_capacity": 300_000},
                "effective_max_running_requests_per_dp": 512,
            }
        ],
    }
    record, _ = watch(
        {
            f"{URL}/metrics": "sglang:num_running_reqs 3\n",
            f"{URL}/get_server_info": json.dumps(info),
        }
    )
    assert "sk-123456789" not in record.answers["/get_server_info"]
    document = facts(record).document
    assert document["engine"] == {"name": "sglang", "version": "0.5.3"}
    assert document["settings"]["enable_prefix_caching"] is False
    assert document["settings"]["max_num_seqs"] == 512
    assert document["settings"]["quantization"] is None
    assert document["signals"]["kv_cache_capacity_tokens"] == 300_000
    assert document["signals"]["kv_cache_capacity_gib"] == 40.5
    assert document["hardware"] == {"count": 2}


def test_trtllm_tells_each_iteration_once() -> None:
    def page(now_s: float) -> str:
        return json.dumps([{"iterLatencyMS": 20.0, "numActiveRequests": int(now_s) % 2 * 8}])

    times = {"arrival_time": 5.0, "first_scheduled_time": 5.5, "first_token_time": 7.0}
    requests = [{"perf_metrics": {"timing_metrics": {**times, "last_token_time": 9.0}}}]
    record, _ = watch(
        {
            f"{URL}/metrics": page,
            f"{URL}/version": '{"version": "1.0.0"}',
            f"{URL}/perf_metrics": json.dumps(requests),
        }
    )
    document = facts(record).document
    assert document["engine"] == {"name": "tensorrt-llm", "version": "1.0.0"}
    assert document["signals"]["step_time_s"] == pytest.approx(0.02)
    assert document["signals"]["requests_running"] == pytest.approx(4, abs=0.2)
    assert document["signals"]["ttft_p99_s"] == 2.0
    assert document["signals"]["queue_time_mean_s"] == 0.5
    assert document["signals"]["e2e_p50_s"] == 4.0


def test_llamacpp_without_the_prompts_of_its_slots() -> None:
    record, _ = watch(
        {
            f"{URL}/metrics": "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n",
            f"{URL}/props": json.dumps(
                {
                    "total_slots": 2,
                    "default_generation_settings": {"n_ctx": 4096},
                    "model_path": "/models/x.gguf",
                    "build_info": "b6123-abcdef0",
                }
            ),
            f"{URL}/slots": json.dumps(
                [{"id": i, "n_ctx": 4096, "is_processing": True, "prompt": "hi"} for i in (0, 1)]
            ),
            f"{URL}/v1/models": json.dumps(
                {"data": [{"id": "x", "meta": {"n_params": 8_030_000_000, "size": 5 * 2**30}}]}
            ),
        }
    )
    assert "hi" not in record.answers["/slots"]
    document = facts(record).document
    assert document["engine"] == {"name": "llama.cpp", "version": "6123"}
    assert document["model"] == {"name": "x", "params_b": 8.03, "weights_gib": 5}
    assert document["settings"] == {"max_num_seqs": 2, "max_model_len": 4096}
    assert document["signals"]["requests_running"] == 2


def test_tgi() -> None:
    info = {"model_id": "m", "version": "3.3.4", "max_total_tokens": 4096}
    record, _ = watch(
        {
            f"{URL}/metrics": "tgi_batch_current_size 3\ntgi_queue_size 2\n",
            f"{URL}/info": json.dumps(info),
        }
    )
    document = facts(record).document
    assert document["engine"] == {"name": "tgi", "version": "3.3.4"}
    assert document["settings"] == {"max_model_len": 4096}
    assert document["signals"]["requests_running"] == 3
    assert document["signals"]["requests_waiting"] == 2


def triton_stats(now_s: float) -> str:
    """One execution a second of the engine, ten of the detokeniser, which queue 5 s for each."""
    seconds = int(now_s) - 1000
    each = {"tensorrt_llm": seconds, "postprocessing": 10 * seconds, "preprocessing": seconds}
    return json.dumps(
        {
            "model_stats": [
                {
                    "name": name,
                    "version": "1",
                    "execution_count": count,
                    "inference_stats": {
                        "success": {"count": count, "ns": 1},
                        "fail": {"count": 0, "ns": 0},
                        "queue": {"count": count, "ns": count * 5 * 10**9},
                    },
                }
                for name, count in each.items()
            ]
        }
    )


TRITON: dict[str, Any] = {
    f"{URL}/v2": '{"name": "triton", "version": "2.50.0"}',
    f"{URL}/v2/models/stats": triton_stats,
    f"{URL}/v2/models/postprocessing/config": json.dumps(
        {"name": "postprocessing", "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
    ),
    f"{URL}/v2/models/tensorrt_llm/config": json.dumps(
        {"name": "tensorrt_llm", "backend": "tensorrtllm", "max_batch_size": 16}
    ),
}


def test_triton_by_its_statistics_where_it_has_no_metrics() -> None:
    record, _ = watch(TRITON)
    document = facts(record).document
    assert document["engine"] == {"name": "triton", "version": "2.50.0"}
    assert document["settings"]["triton.postprocessing_instances"] == 1
    assert document["settings"]["max_num_seqs"] == 16
    signals = document["signals"]
    assert signals["triton_exec_infer_count"] == 30
    assert signals["triton_exec_postprocess_count"] == 300
    assert signals["triton_queue_postprocess_s"] == pytest.approx(1500)


def test_triton_has_its_metrics_on_a_port_of_their_own() -> None:
    metrics = 'nv_inference_exec_count{model="tensorrt_llm",version="1"} 5\n'
    record, engine = watch(
        {**TRITON, "http://engine:8002/metrics": metrics}, authorization="Bearer x"
    )
    assert {page.path for page in record.pages} == {"http://engine:8002/metrics"}
    sent = dict(engine.asked)
    assert sent["http://engine:8002/metrics"] == ()  # a key is for its own server
    assert sent[f"{URL}/v2"] == (("authorization", "Bearer x"),)


def test_the_url_may_name_the_metrics_page_or_the_api() -> None:
    for url in (f"{URL}/metrics", f"{URL}/v1", f"{URL}/"):
        record, _ = watch(VLLM, url=url)
        assert record.url == URL
        assert len(record.pages) == 31
    record, _ = watch({"http://engine:8000/a/b/metrics": vllm_metrics}, url=f"{URL}/a/b/metrics")
    assert record.url == f"{URL}/a/b"


def test_an_engine_without_metrics_still_tells_what_it_serves() -> None:
    record, _ = watch({key: value for key, value in VLLM.items() if "metrics" not in key})
    assert record.pages == ()
    assert facts(record).document["settings"] == {"max_model_len": 8192}


def test_a_page_that_fails_in_between_is_left_out() -> None:
    def page(now_s: float) -> str:
        return "" if 1005 <= now_s < 1015 else vllm_metrics(now_s)

    record, _ = watch({f"{URL}/metrics": page})
    assert len(record.pages) == 21
    assert facts(record).document["signals"]["output_tokens_per_s"] == pytest.approx(10)


def test_a_front_page_in_the_place_of_metrics_is_passed_over() -> None:
    record, _ = watch(
        {f"{URL}/prometheus/metrics": "<html>\n<body>hello</body>", f"{URL}/metrics": vllm_metrics}
    )
    assert {page.path for page in record.pages} == {"/metrics"}
    assert record.missing["/prometheus/metrics"] == "no metrics"


def test_where_nothing_answers_is_an_error() -> None:
    with pytest.raises(EngineError, match=r"http://engine:8000: no page of an engine: .*refused"):
        watch({})
    with pytest.raises(EngineError, match="no page of an engine: answered 404"):
        watch({f"{URL}/other": "x"})


def test_what_is_no_url_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="http") as caught:
        watch({}, url="ftp://user:secret@engine")
    assert "secret" not in str(caught.value)


def test_pages_are_thinned_out_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_engine, "PAGES_MAX", 8)
    record, _ = watch(VLLM)
    assert 3 <= len(record.pages) <= 8
    assert record.pages[0].at_s == 1000
    assert record.pages[-1].at_s == 1030
    assert facts(record).document["signals"]["output_tokens_per_s"] == pytest.approx(10)
