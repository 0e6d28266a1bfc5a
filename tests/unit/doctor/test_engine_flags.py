"""A change is spelt as the engine spells it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mileage.doctor.engine_flags import change_line, settings_of_flags
from mileage.doctor.opinion import Change
from mileage.doctor.vocabulary import SECTIONS


@pytest.mark.parametrize(
    ("engine", "setting", "value", "line"),
    [
        ("vllm", "max_num_seqs", 128.0, "--max-num-seqs 128"),
        ("sglang", "max_num_seqs", 128.0, "--max-running-requests 128"),
        ("tensorrt_llm", "max_num_seqs", 128.0, "--max_batch_size 128"),
        ("triton", "max_num_seqs", 128.0, "max_batch_size: 128"),
        ("llama.cpp", "max_num_seqs", 8.0, "--parallel 8"),
        ("vllm", "enforce_eager", False, "remove --enforce-eager"),
        ("vllm", "enable_prefix_caching", False, "--no-enable-prefix-caching"),
        ("sglang", "enable_prefix_caching", True, "remove --disable-radix-cache"),
        ("sglang", "enable_prefix_caching", False, "--disable-radix-cache"),
        ("sglang", "kv_cache_dtype", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("llama.cpp", "kv_cache_dtype", "fp8", "--cache-type-k q8_0 --cache-type-v q8_0"),
        ("vllm", "speculative.method", None, "remove --speculative-config"),
        ("sglang", "max_cpu_loras", 8, "--max-loaded-loras 8"),
        ("tensorrt-llm", "max_lora_rank", 16, "lora_config.max_lora_rank: 16"),
        (None, "k8s.cpu_request", 10.0, "resources.requests.cpu: 10"),
        (
            None,
            "k8s.startup_deadline_s",
            845.0,
            "startupProbe: periodSeconds: 10, failureThreshold: 85",
        ),
        (
            "tensorrt-llm",
            "scheduler.policy",
            "guaranteed_no_evict",
            "scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT",
        ),
        (
            "tensorrt-llm",
            "max_tokens_in_paged_kv_cache",
            None,
            "remove kv_cache_config.max_tokens",
        ),
        (
            "triton",
            "scheduler.policy",
            "guaranteed_no_evict",
            'parameters { key: "batch_scheduler_policy" value '
            '{ string_value: "guaranteed_no_evict" } }',
        ),
        (
            "triton",
            "triton.dynamic_batching_delay_s",
            0.0005,
            "dynamic_batching { max_queue_delay_microseconds: 500 }",
        ),
        (None, "env.OMP_NUM_THREADS", 4.0, "export OMP_NUM_THREADS=4"),
        ("vllm", "env.NCCL_P2P_DISABLE", None, "unset NCCL_P2P_DISABLE"),
        (
            "vllm",
            "vgpu.core_limit_ratio",
            None,
            "remove nvidia.com/gpucores from the pod's limits",
        ),
        (None, "max_num_seqs", 16.0, "requests that may run at once: 16"),
        ("sglang", "api_server_count", 4, "--tokenizer-worker-num 4"),
        ("sglang", "mm_processor_workers", 8, "export SGLANG_CPU_WORKERS=8"),
        ("sglang", "enable_chunked_prefill", True, "--chunked-prefill-size 8192"),
        ("sglang", "safetensors_load_strategy", "eager", "--weight-loader-disable-mmap"),
        (
            "vllm",
            "mm_processor_workers",
            8,
            "--api-server-count 8 (the API servers prepare media)",
        ),
        (
            "vllm",
            "logprobs",
            20,
            "logprobs: 20 in the requests (--max-logprobs 20 refuses more)",
        ),
        ("llama.cpp", "logprobs", 20, "top_logprobs: 20 in the requests"),
        ("llama.cpp", "enable_prefix_caching", True, "--cache-prompt"),
        (
            "tensorrt-llm",
            "structured_output_backend",
            "xgrammar",
            "guided_decoding_backend: xgrammar",
        ),
        ("tensorrt-llm", "data_parallel_size", 4, "4 servers behind a router"),
        (None, "client.max_connections", 40, "connections of the client's pool: 40"),
        (None, "keda.idle_replicas", None, "remove idleReplicaCount of the ScaledObject"),
        (None, "keda.polling_s", 15.0, "ScaledObject pollingInterval: 15"),
        ("vllm", "hpa.metric", "requests_waiting", "scale by vllm:num_requests_waiting"),
        (
            None,
            "knative.scale_to_zero_window_s",
            480,
            "config-autoscaler scale-to-zero-pod-retention-period, in s: 480",
        ),
    ],
)
def test_line(engine: str | None, setting: str, value: Any, line: str) -> None:
    assert change_line(Change(setting, value), engine) == line


ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "triton", "tgi", "mileage", None)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_name_of_the_vocabulary_passes_for_an_option(engine: str | None) -> None:
    for section, names in SECTIONS.items():
        if section not in ("settings", "workload"):
            continue
        for name in names:
            for value in (16.0, True, False, "word", None):
                line = change_line(Change(name, value), engine)
                assert not re.match(rf"(--)?{re.escape(name)}\b *=", line), (engine, name, line)


def test_options_of_engines_are_known_by_their_bare_names() -> None:
    settings = settings_of_flags()
    assert settings["max_running_requests"] == settings["max_batch_size"] == "max_num_seqs"
    assert settings["tp_size"] == "tensor_parallel_size"
