"""A change is spelt as the engine spells it."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.engine_flags import change_line
from mileage.doctor.opinion import Change


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
        (None, "max_num_seqs", 16.0, "max_num_seqs = 16"),
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
