"""Whatever an engine answers, logs or was started with: facts that decode, or a MileageError."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import MileageError
from mileage.doctor.collect.engine_answers import answer_facts
from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.launch_arguments import launch_facts
from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts
from mileage.doctor.collect.merge_replicas import merge_replicas
from mileage.doctor.collect.python_text import read_fields, read_value
from mileage.doctor.collect.startup_log import log_facts
from mileage.doctor.collect.triton_config import repository_models, triton_config_facts
from mileage.doctor.facts import decode_facts
from mileage.measure.engine_aliases import NAMES

PATHS = (
    "/version",
    "/v1/models",
    "/server_info",
    "/get_server_info",
    "/props",
    "/slots",
    "/v2",
    "/perf_metrics",
    "/v2/models/x/config",
)
HISTOGRAMS = ("vllm:time_to_first_token_seconds", "sglang:e2e_request_latency_seconds")
OTHERS = (
    *(f"{name}{end}" for name in HISTOGRAMS for end in ("_bucket", "_sum", "_count")),
    "nv_inference_exec_count",
    "nv_inference_queue_duration_us",
    "http_requests_total",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "vllm:lora_requests_info",
    "vllm:request_success_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:iteration_tokens_total_count",
    "vllm:iteration_tokens_total_sum",
    "sglang:cuda_graph_passes_total",
)
LABELS = (
    "",
    '{engine="0"}',
    '{engine="1",model_name="m"}',
    '{le="0.5"}',
    '{le="+Inf"}',
    '{le="x"}',
    '{model="postprocessing"}',
    '{finished_reason="abort"}',
    '{status="5xx",handler="/v1"}',
    '{block_size="16",num_gpu_blocks="7",cache_dtype="None",max_lora="2"}',
    '{request_type="max"}',
    '{mode="decode_none"}',
)
NUMBERS = st.one_of(
    st.sampled_from(["0", "1", "0.5", "87.5", "NaN", "+Inf", "-1", "1e300", "1e17", "x", ""]),
    st.integers(0, 10**6).map(str),
)
LINES = st.builds(
    lambda name, labels, value: f"{name}{labels} {value}",
    st.sampled_from(sorted(NAMES) + list(OTHERS)),
    st.sampled_from(LABELS),
    NUMBERS,
)
PAGES = st.one_of(st.lists(LINES, max_size=25).map("\n".join), st.text(max_size=200))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "data",
                    "id",
                    "meta",
                    "n_params",
                    "size",
                    "max_model_len",
                    "version",
                    "name",
                    "internal_states",
                    "memory_usage",
                    "token_capacity",
                    "model_path",
                    "tp_size",
                    "vllm_config",
                    "quantization",
                    "total_slots",
                    "default_generation_settings",
                    "n_ctx",
                    "build_info",
                    "perf_metrics",
                    "timing_metrics",
                    "arrival_time",
                    "first_token_time",
                    "instance_group",
                    "count",
                    "kind",
                    "parameters",
                    "ensemble_scheduling",
                    "step",
                    "model_name",
                    "dynamic_batching",
                    "gpus",
                    "kvCacheStats",
                    "usedNumBlocks",
                    "maxNumBlocks",
                    "tokensPerBlock",
                    "iterLatencyMS",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
LOG_PIECES = (
    "(EngineCore_DP0 pid=1) INFO 06-14 04:56:30 [x.py:1] ",
    "[2026-05-24 03:51:44 TP0] ",
    "[99:99:99] ",
    "02-30 00:00:00 ",
    "Engine 000: Avg prompt throughput: 1e9 tokens/s, Avg generation throughput: 2.0 tokens/s, ",
    "Running: 99999999999999999999999 reqs, Waiting: 3 reqs, GPU KV cache usage: 140.0%, ",
    "Prefix cache hit rate: -3.0%",
    "Decode batch. #running-req: 3, token usage: 9.99, gen throughput (token/s): 1.2.3, ",
    "SpecDecoding metrics: Draft acceptance rate: 300%, Mean acceptance length: 0.1",
    "Initializing a V1 LLM engine (v0.1) with config: model='m', quantization={'a': [1, ",
    "non-default args: {'max_num_seqs': {}, 'speculative_config': 5, 'model': [[]]}",
    "server_args=ServerArgs(tp_size=None, quantization=[], page_size='x', speculative_algorithm=1)",
    "args: Namespace(tensor_parallel_size=1e400, max_num_seqs=-4)",
    "GPU KV cache size: ,,, tokens",
    "GPU KV cache size: 1,2 tokens",
    "Maximum concurrency for 0 tokens per request: 1.0.0x",
    "# GPU blocks: 5",
    "Loading weights took 1.2.3 seconds",
    "Compiling a graph for x takes . s",
    "Load weight begin",
    "Load weight end",
    "CUDA out of memory. Tried to allocate 1..2 GiB of which 3 XB is free",
    "NCCL INFO Using network Weird",
    "print_info: model params     = .... B",
    "eval time = . ms / 0 runs",
    'Active Request Count\\":5',
    "\x1b[32m",
)
LOG = st.lists(
    st.lists(st.sampled_from(LOG_PIECES) | st.text(max_size=8), max_size=4).map("".join),
    max_size=12,
)
WORDS = st.lists(
    st.sampled_from(
        [
            "vllm",
            "serve",
            "m",
            "-tp",
            "--tensor-parallel-size",
            "--enforce-eager",
            "4",
            "-1",
            "--speculative-config",
            '{"method": 5}',
            "{",
            "[1]",
            "--no-",
            "-",
            "--",
            "--a.b.c=1",
            "sglang",
            "--tp",
            "8",
            "--speculative-algorithm",
            "llama-server",
            "-np",
            "0",
            "-c",
            "trtllm-serve",
            "sh",
            "-c",
            "vllm serve 'm",
            "--kv-transfer-config.kv_role",
            "=",
            "--=x",
            "--speculative-config.method",
            "--max-model-len",
            "1e999",
            "nan",
            "--quantization",
        ]
    )
    | st.text(max_size=6),
    max_size=10,
)


def decodes(document: dict[str, Any]) -> None:
    """Every name and value is one of the vocabulary's; the document is JSON."""
    decode_facts(document)
    decode_facts(json.loads(json.dumps(document)))


@settings(max_examples=300, deadline=None)
@given(st.lists(PAGES, max_size=4), st.dictionaries(st.sampled_from(PATHS), JSON, max_size=4))
def test_pages_and_answers(pages: list[str], answers: dict[str, Any]) -> None:
    paths = ("/metrics", "/metrics", "/v2/models/stats", "/metrics")
    record = EngineRecord(
        url="http://engine",
        pages=tuple(
            RecordedPage(at_s=float(index), at_utc_s=1e9 + index, path=paths[index], text=text)
            for index, text in enumerate(pages)
        ),
        answers={path: json.dumps(answer) for path, answer in answers.items()},
    )
    found = engine_facts(record)
    merged = merge_facts(found).document
    decodes(merged)
    decodes(merge_replicas([part.document for part in found]))
    decodes(merge_replicas([merged, merged]))


@settings(max_examples=150, deadline=None)
@given(st.lists(JSON, max_size=3))
def test_json_pages(records: list[Any]) -> None:
    record = EngineRecord(
        url="http://engine",
        pages=(RecordedPage(at_s=0.0, at_utc_s=0.0, path="/metrics", text=json.dumps(records)),),
    )
    decodes(merge_facts(engine_facts(record)).document)


@settings(max_examples=300, deadline=None)
@given(LOG)
def test_logs(lines: list[str]) -> None:
    decodes(log_facts(lines))


@settings(max_examples=300, deadline=None)
@given(WORDS, st.dictionaries(st.sampled_from(["OMP_NUM_THREADS", "VLLM_USE_V1"]), st.text()))
def test_command_lines(words: list[str], environment: dict[str, str]) -> None:
    facts = launch_facts(words, environment, version="0.6.0", environment_is_whole=True)
    decodes(facts.configured)
    decodes(facts.defaults)
    parts = [
        SourcedFacts(source="line", standing="configured", document=facts.configured),
        SourcedFacts(source="defaults", standing="default", document=facts.defaults),
    ]
    decodes(merge_facts(parts).document)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "name",
                ":",
                "{",
                "}",
                "[",
                "]",
                ",",
                ";",
                '"x"',
                "1",
                "-1.5",
                "true",
                "# c\n",
                "<",
                ">",
                "instance_group",
                "count",
                "kind",
                "KIND_GPU",
                "gpus",
                "dynamic_batching",
                "${x}",
                "parameters",
                "key",
                "value",
                "string_value",
                "ensemble_scheduling",
                "step",
                "'",
            ]
        ),
        max_size=25,
    )
)
def test_repositories(tokens: list[str]) -> None:
    with contextlib.suppress(MileageError):
        models = repository_models({"m/config.pbtxt": " ".join(tokens)})
        decodes(triton_config_facts(models))


@given(st.text(alphabet="a=,'\"{}[]()<>: 1.\\\n"))
def test_text_of_python(text: str) -> None:
    json.dumps(read_fields(text))
    json.dumps(read_value(text))


@given(st.sampled_from(PATHS), st.text(max_size=50))
def test_answers_that_are_no_json(path: str, body: str) -> None:
    decodes(answer_facts(path, body))


@given(st.lists(st.integers(0, 100), min_size=2, max_size=6))
def test_a_counter_that_falls_counts_from_zero(totals: list[int]) -> None:
    record = EngineRecord(
        url="http://engine",
        pages=tuple(
            RecordedPage(
                at_s=float(index),
                at_utc_s=float(index),
                path="/metrics",
                text=f"vllm:generation_tokens_total {total}",
            )
            for index, total in enumerate(totals)
        ),
    )
    grown = sum(after - before if after >= before else after for before, after in pairwise(totals))
    signals = merge_facts(engine_facts(record)).document["signals"]
    assert abs(signals["output_tokens_per_s"] * (len(totals) - 1) - grown) < 1e-6
