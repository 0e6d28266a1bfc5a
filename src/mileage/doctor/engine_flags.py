"""How each engine spells a setting: the line to change, from the vocabulary's name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mileage.doctor.engine_words import meant_by, plain_value, words_of
from mileage.doctor.opinion import Change

__all__ = ["change_line", "engine_family", "settings_of_flags"]

VLLM: Mapping[str, str] = {
    "tensor_parallel_size": "--tensor-parallel-size",
    "pipeline_parallel_size": "--pipeline-parallel-size",
    "data_parallel_size": "--data-parallel-size",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_model_len": "--max-model-len",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "block_size": "--block-size",
    "quantization": "--quantization",
    "cpu_offload_gb": "--cpu-offload-gb",
    "swap_space": "--swap-space",
    "max_loras": "--max-loras",
    "max_cpu_loras": "--max-cpu-loras",
    "max_lora_rank": "--max-lora-rank",
    "api_server_count": "--api-server-count",
    "enforce_eager": "--enforce-eager",
    "enable_prefix_caching": "--enable-prefix-caching",
    "enable_chunked_prefill": "--enable-chunked-prefill",
    "enable_lora": "--enable-lora",
    "enable_expert_parallel": "--enable-expert-parallel",
    "disable_custom_all_reduce": "--disable-custom-all-reduce",
    "safetensors_load_strategy": "--safetensors-load-strategy",
    "tokenizer_mode": "--tokenizer-mode",
    "structured_output_backend": "--structured-outputs-config.backend",
    "speculative.method": "--speculative-config",
}

SGLANG: Mapping[str, str] = {
    "tensor_parallel_size": "--tp-size",
    "pipeline_parallel_size": "--pp-size",
    "data_parallel_size": "--dp-size",
    "max_num_seqs": "--max-running-requests",
    "max_num_batched_tokens": "--chunked-prefill-size",
    "max_model_len": "--context-length",
    "gpu_memory_utilization": "--mem-fraction-static",
    "kv_cache_dtype": "--kv-cache-dtype",
    "block_size": "--page-size",
    "quantization": "--quantization",
    "cpu_offload_gb": "--cpu-offload-gb",
    "enable_lora": "--enable-lora",
    "max_loras": "--max-loras-per-batch",
    "max_cpu_loras": "--max-loaded-loras",
    "max_lora_rank": "--max-lora-rank",
    "enforce_eager": "--disable-cuda-graph",
    "disable_custom_all_reduce": "--disable-custom-all-reduce",
    "max_tokens_in_paged_kv_cache": "--max-total-tokens",
    "api_server_count": "--tokenizer-worker-num",
    "num_reserved_decode_tokens": "--num-reserved-decode-tokens",
    "tokenizer_mode": "--tokenizer-mode",
    "tokenizer_threads": "--tokenizer-worker-num",
    "structured_output_backend": "--grammar-backend",
    "speculative.method": "--speculative-algorithm",
    "speculative.num_tokens": "--speculative-num-draft-tokens",
}

TENSORRT_LLM: Mapping[str, str] = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "max_num_seqs": "--max_batch_size",
    "max_num_batched_tokens": "--max_num_tokens",
    "max_model_len": "--max_seq_len",
    "gpu_memory_utilization": "--kv_cache_free_gpu_memory_fraction",
    "api_server_count": "--num_postprocess_workers",
}

LLAMA_CPP: Mapping[str, str] = {
    "max_num_seqs": "--parallel",
    "max_num_batched_tokens": "--batch-size",
    "max_model_len": "--ctx-size",
    "kv_cache_dtype": "--cache-type-k",
    "enable_prefix_caching": "--cache-prompt",
    "api_server_count": "--threads-http",
    "tokenizer_threads": "--threads-http",
    "speculative.method": "--model-draft",
    "speculative.num_tokens": "--draft-max",
}

MILEAGE: Mapping[str, str] = {
    "max_num_seqs": "mileage serve --slots",
    "max_model_len": "mileage serve --context-tokens",
}
"""Of the embedded engine."""

FLAGS: Mapping[str, Mapping[str, str]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "tensorrt-llm": TENSORRT_LLM,
    "llama.cpp": LLAMA_CPP,
    "mileage": MILEAGE,
}
"""Engine -> setting -> its option on the command line."""

YAML_OPTIONS: Mapping[str, str] = {
    "scheduler.policy": "scheduler_config.capacity_scheduler_policy",
    "block_size": "kv_cache_config.tokens_per_block",
    "enable_prefix_caching": "kv_cache_config.enable_block_reuse",
    "max_tokens_in_paged_kv_cache": "kv_cache_config.max_tokens",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "kv_cache_dtype": "kv_cache_config.dtype",
    "speculative.method": "speculative_config",
    "structured_output_backend": "guided_decoding_backend",
    "max_loras": "lora_config.max_loras",
    "max_cpu_loras": "lora_config.max_cpu_loras",
    "max_lora_rank": "lora_config.max_lora_rank",
}
"""TensorRT-LLM's settings that stand in its options file, not on the command line."""


TRITON_PARAMETERS: Mapping[str, str] = {
    "scheduler.policy": "batch_scheduler_policy",
    "max_tokens_in_paged_kv_cache": "max_tokens_in_paged_kv_cache",
    "gpu_memory_utilization": "kv_cache_free_gpu_mem_fraction",
    "enable_chunked_prefill": "enable_chunked_context",
    "enable_prefix_caching": "enable_kv_cache_reuse",
}
"""Parameters in the model's config.pbtxt of Triton's TensorRT-LLM backend."""

INVERTED: Mapping[tuple[str, str], str] = {
    ("sglang", "enable_prefix_caching"): "--disable-radix-cache",
}
"""Switches that say the opposite of the setting's name."""

VALUES: Mapping[tuple[str, str, str], str] = {
    ("sglang", "kv_cache_dtype", "fp8"): "fp8_e4m3",
    ("llama.cpp", "kv_cache_dtype", "fp8"): "q8_0 --cache-type-v q8_0",
    ("tensorrt-llm", "scheduler.policy", "guaranteed_no_evict"): "GUARANTEED_NO_EVICT",
    ("tensorrt-llm", "scheduler.policy", "max_utilization"): "MAX_UTILIZATION",
}
"""Engine, setting and the vocabulary's value -> the engine's own word for it."""

MANIFEST: Mapping[tuple[str, str | None], str] = {
    ("vgpu.policy", "force"): "container env GPU_CORE_UTILIZATION_POLICY: force",
    ("vgpu.core_limit_ratio", None): "remove nvidia.com/gpucores from the pod's limits",
    ("k8s.gpu_sharing", "mps"): "device plugin config: sharing.mps.resources",
    ("k8s.gpu_sharing", "mig"): "device plugin config: flags.migStrategy: mixed",
    ("keda.idle_replicas", None): "remove idleReplicaCount of the ScaledObject",
    ("nccl.net_transport", "ib"): "pod: /dev/infiniband (RDMA device plugin) and IPC_LOCK",
    ("storage.compile_cache", "populated"): "a lasting volume at ~/.cache/vllm (VLLM_CACHE_ROOT)",
    ("storage.kernel_cache", "populated"): "lasting volumes at ~/.cache/flashinfer and ~/.triton",
}
"""Setting and value -> the place in a cluster's manifests where it is made, on any engine."""


MANIFEST_FIELDS: Mapping[str, str] = {
    "k8s.cpu_request": "resources.requests.cpu",
    "k8s.cpu_limit": "resources.limits.cpu",
    "hpa.min_replicas": "minReplicas (KEDA: minReplicaCount)",
    "hpa.max_replicas": "maxReplicas (KEDA: maxReplicaCount)",
    "hpa.target": "target of the autoscaler's metric",
    "hpa.scale_down_stabilization_s": "behavior.scaleDown.stabilizationWindowSeconds",
    "keda.cooldown_s": "ScaledObject cooldownPeriod",
    "keda.polling_s": "ScaledObject pollingInterval",
    "keda.min_replicas": "ScaledObject minReplicaCount",
    "knative.scale_to_zero_window_s": "config-autoscaler scale-to-zero-pod-retention-period, in s",
}
"""Settings that are fields of a manifest whatever their value."""

PROBE_PERIOD_S = 10
"""Kubernetes' default time between two probes."""


def engine_family(name: str | None) -> str | None:
    """The engine by the name that its flags are listed under; None where it has none."""
    if name is None:
        return None
    bare = name.lower().replace("_", "-")
    if bare.startswith(("tensorrt", "trt")):
        return "tensorrt-llm"
    if "llama" in bare and "cpp" in bare:
        return "llama.cpp"
    return next((family for family in FLAGS if bare.startswith(family)), None)


def change_line(change: Change, engine: str | None) -> str:
    """The flag or line that makes the change on that engine; in words where it has none.

    A name of the vocabulary is no option of any engine, and is never told as one.
    """
    family = engine_family(engine)
    words = words_of(family, change.setting, change.value)
    if words is not None:
        return words
    manifest = MANIFEST.get((change.setting, None if change.value is None else str(change.value)))
    if manifest is not None:
        return manifest
    field = MANIFEST_FIELDS.get(change.setting)
    if field is not None and change.value is not None:
        return f"{field}: {plain_value(change.value)}"
    if change.setting == "k8s.startup_deadline_s" and isinstance(change.value, float):
        failures = math.ceil(change.value / PROBE_PERIOD_S)
        return f"startupProbe: periodSeconds: {PROBE_PERIOD_S}, failureThreshold: {failures}"
    if (engine or "").lower().startswith("triton"):
        return _triton_line(change)
    value = VALUES.get((family or "", change.setting, str(change.value)), change.value)
    inverted = INVERTED.get((family or "", change.setting))
    if inverted is not None:
        return f"remove {inverted}" if change.value else inverted
    if change.setting.startswith("env."):
        name = change.setting.removeprefix("env.")
        return (
            f"unset {name}"
            if change.value is None
            else f"export {name}={plain_value(change.value)}"
        )
    if family == "tensorrt-llm" and change.setting in YAML_OPTIONS:
        option = YAML_OPTIONS[change.setting]
        return f"remove {option}" if change.value is None else f"{option}: {plain_value(value)}"
    flag = FLAGS.get(family or "", {}).get(change.setting)
    if flag is None:
        return meant_by(change.setting, change.value)
    if change.value is None or (change.value is False and flag in _SWITCHES):
        return f"remove {flag}"
    if change.value is True:
        return flag
    if change.value is False:
        return f"--no-{flag.removeprefix('--')}"
    return f"{flag} {plain_value(value)}"


def _triton_line(change: Change) -> str:
    """The lines of config.pbtxt for it."""
    value = plain_value(change.value)
    if change.setting == "triton.dynamic_batching_delay_s" and isinstance(change.value, float):
        delay_us = round(change.value * 1e6)
        return f"dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}"
    if change.setting == "triton.postprocessing_instances":
        return f"instance_group [ {{ count: {value} }} ]"
    if change.setting == "max_num_seqs":
        return f"max_batch_size: {value}"
    name = TRITON_PARAMETERS.get(change.setting)
    if name is None:
        return meant_by(change.setting, change.value)
    if change.value is None:
        return f"remove the parameter {name}"
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


_SWITCHES = frozenset(
    {
        "--enforce-eager",
        "--disable-cuda-graph",
        "--enable-lora",
        "--enable-expert-parallel",
        "--disable-custom-all-reduce",
    }
)


def settings_of_flags() -> dict[str, str]:
    """Engines' options by their bare names (`max_running_requests`) -> the vocabulary's name."""
    return {
        flag.lstrip("-").replace("-", "_"): setting
        for flags in FLAGS.values()
        for setting, flag in flags.items()
        if flag.startswith("--")
    }
