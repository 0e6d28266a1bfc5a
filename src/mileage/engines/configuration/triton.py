"""Triton's config.pbtxt out of a plan: instances, dynamic batching, the backend's parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

import msgspec

from mileage.engines.configuration.cache_size import CacheSize
from mileage.engines.configuration.configuration import Configuration, PlanFields, set_fields
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["triton_configuration"]

_TITLE: Final = "Triton"
_REPOSITORY: Final = "model_repository"
_BACKENDS: Final = {
    "tensorrt_llm": "tensorrtllm",
    "python": "python",
    "onnxruntime": "onnxruntime",
}
_BATCH_MAX: Final = 8
"""Where the plan does not say: without a largest batch Triton makes none at all."""
_US_PER_MS: Final = 1000.0
_PORT_MAX: Final = 65_535
_AT_BUILD: Final = "the engine has it from its build: generate for trtllm, too"

_Tensor = tuple[str, str, tuple[int, ...], bool]
"""Name, type, dimensions, and whether it may be left out."""
_INPUTS: Final[tuple[_Tensor, ...]] = (
    ("input_ids", "TYPE_INT32", (-1,), False),
    ("input_lengths", "TYPE_INT32", (1,), False),
    ("request_output_len", "TYPE_INT32", (1,), False),
    ("end_id", "TYPE_INT32", (1,), True),
    ("pad_id", "TYPE_INT32", (1,), True),
    ("stop_words_list", "TYPE_INT32", (2, -1), True),
    ("bad_words_list", "TYPE_INT32", (2, -1), True),
    ("beam_width", "TYPE_INT32", (1,), True),
    ("temperature", "TYPE_FP32", (1,), True),
    ("runtime_top_k", "TYPE_INT32", (1,), True),
    ("runtime_top_p", "TYPE_FP32", (1,), True),
    ("repetition_penalty", "TYPE_FP32", (1,), True),
    ("random_seed", "TYPE_UINT64", (1,), True),
    ("stop", "TYPE_BOOL", (1,), True),
    ("streaming", "TYPE_BOOL", (1,), True),
)
_LORA_INPUTS: Final[tuple[_Tensor, ...]] = (
    ("lora_task_id", "TYPE_UINT64", (1,), True),
    ("lora_weights", "TYPE_FP16", (-1, -1), True),
    ("lora_config", "TYPE_INT32", (-1, 3), True),
)
_UNSHAPED: Final = frozenset({"request_output_len", "stop", "streaming"})
"""Those of one number that the backend takes as they come; of others it takes the number alone."""
_OUTPUTS: Final[tuple[_Tensor, ...]] = (
    ("output_ids", "TYPE_INT32", (-1, -1), False),
    ("sequence_length", "TYPE_INT32", (-1,), False),
)


def triton_configuration(
    plan: EnginePlan, cache: CacheSize | None = None, directory: PurePath | None = None
) -> Configuration:
    """The command of the server, and the config.pbtxt of the model in its repository.

    `cache`: what was computed of one instance's KV cache; `directory`: where the repository will
    be. Raises ConfigError for a name that is no directory's, and for what Triton has not.
    """
    fields = PlanFields(plan, _TITLE)
    name = _name(fields)
    fields.take("host", "port", "triton")
    lines = [f"name: {_text(name)}", f"backend: {_text(_BACKENDS[plan.triton.backend])}"]
    batch = plan.running_max or _BATCH_MAX
    fields.take("running_max")
    lines += [f"max_batch_size: {batch}", ""]
    if plan.triton.backend == "tensorrt_llm":
        lines += _tensors("input", (*_INPUTS, *(_LORA_INPUTS if plan.lora else ())))
        lines += _tensors("output", _OUTPUTS)
        # Tokens are answered one by one.
        lines += ["model_transaction_policy {", "  decoupled: true", "}", ""]
    devices = _device_sets(fields)
    lines += [*_instances(fields, devices), *_batching(fields, batch)]
    if plan.triton.backend == "tensorrt_llm":
        lines += _parameters(fields, cache, devices)
    if plan.port > _PORT_MAX - 2:
        expected = f"up to {_PORT_MAX - 2}: gRPC and metrics have the two ports that follow"
        raise fields.refuse("port", plan.port, expected)
    repository = (directory or PurePath()) / _REPOSITORY
    command = (
        "tritonserver",
        f"--model-repository={repository}",
        f"--http-address={plan.host}",  # that of the metrics is the same, unless it is told
        f"--http-port={plan.port}",
        # Its own address is 0.0.0.0.
        f"--grpc-address={plan.host}",
        f"--grpc-port={plan.port + 1}",
        f"--metrics-port={plan.port + 2}",
    )
    spread = bool(devices) and len(plan.triton.gpus) > 1
    return Configuration(
        engine="triton",
        commands=(command,),
        # Else all of its executors are in the server's own process.
        environment={"TRTLLM_ORCHESTRATOR": "1"} if spread else {},
        files={f"{_REPOSITORY}/{name}/config.pbtxt": "\n".join(lines).rstrip() + "\n"},
        warnings=fields.warnings(),
        kv_cache=cache,
    )


def _name(fields: PlanFields) -> str:
    plan = fields.plan
    fields.take("model", "served_name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", plan.name):
        key = "model" if plan.served_name is None else "served_name"
        expected = "letters, digits and . _ - (or a served_name of such): it names a directory"
        raise fields.refuse(key, plan.name, expected)
    return plan.name


def _tensors(kind: str, tensors: Iterable[_Tensor]) -> list[str]:
    lines: list[str] = []
    for name, data_type, dims, optional in tensors:
        shape = ", ".join(map(str, dims))
        lines += [f"{kind} {{", f"  name: {_text(name)}", f"  data_type: {data_type}"]
        lines.append(f"  dims: [ {shape} ]")
        if kind == "input" and dims == (1,) and name not in _UNSHAPED:
            lines.append("  reshape { shape: [ ] }")
        if kind == "input" and -1 in dims:
            lines.append("  allow_ragged_batch: true")
        if optional:
            lines.append("  optional: true")
        lines.append("}")
    return [*lines, ""]


def _device_sets(fields: PlanFields) -> list[tuple[int, ...]]:
    """The GPUs of each instance that TensorRT-LLM makes; none where the plan leaves them to it.

    ConfigError where they cannot be shared out to whole instances.
    """
    plan = fields.plan
    gpus, each = plan.triton.gpus, plan.tensor_parallel * plan.pipeline_parallel
    if plan.triton.backend != "tensorrt_llm":
        return []
    if len(gpus) % each:
        expected = f"a multiple of {each} GPUs (tensor_parallel x pipeline_parallel)"
        raise fields.refuse("triton.gpus", list(gpus), expected)
    return [gpus[at : at + each] for at in range(0, len(gpus), each)] * plan.instances


def _instances(fields: PlanFields, devices: list[tuple[int, ...]]) -> list[str]:
    plan = fields.plan
    fields.take("instances")
    lines = ["instance_group {", f"  count: {len(devices) or plan.instances}"]
    if plan.triton.backend == "tensorrt_llm":
        lines.append("  kind: KIND_CPU")  # its executor takes the GPUs itself: gpu_device_ids
    else:
        lines.append("  kind: KIND_GPU")
        if plan.triton.gpus:
            lines.append(f"  gpus: [ {', '.join(map(str, plan.triton.gpus))} ]")
    return [*lines, "}", ""]


def _batching(fields: PlanFields, batch: int) -> list[str]:
    plan = fields.plan
    fields.take("queue_delay_ms", "preferred_batch_sizes")
    sizes = plan.preferred_batch_sizes
    if sizes and sizes[-1] > batch:
        raise fields.refuse(
            "preferred_batch_sizes", sizes[-1], f"up to {batch}, its largest batch (running_max)"
        )
    lines = ["dynamic_batching {"]
    if sizes:
        lines.append(f"  preferred_batch_size: [ {', '.join(map(str, sizes))} ]")
    if plan.queue_delay_ms is not None:
        delay_us = round(plan.queue_delay_ms * _US_PER_MS)
        lines.append(f"  max_queue_delay_microseconds: {delay_us}")
    return [*lines, "}", ""]


def _parameters(
    fields: PlanFields, cache: CacheSize | None, devices: list[tuple[int, ...]]
) -> list[str]:
    plan = fields.plan
    fields.take("trtllm.engine_dir", "prefix_caching", "chunked_prefill", "gpu_memory_ratio")
    for name in (
        "tensor_parallel",
        "pipeline_parallel",
        "dtype",
        "weights",
        "kv_dtype",
        "context_max_tokens",
        "step_tokens_max",
        "block_tokens",
    ):
        if name in set_fields(plan):
            fields.warn(name, f"not told to Triton: {_AT_BUILD}")
    found = {
        # Requests join and leave the batch between steps.
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": plan.trtllm.engine_dir,
    }
    if cache is not None:
        found["max_tokens_in_paged_kv_cache"] = str(cache.tokens)
        found["kv_cache_free_gpu_mem_fraction"] = f"{cache.free_ratio:g}"
    elif (ratio := plan.instance_memory_ratio) is not None:
        found["kv_cache_free_gpu_mem_fraction"] = f"{ratio:g}"
        fields.warn(
            "gpu_memory_ratio",
            "TensorRT-LLM's share is of what is free once the weights are there, for the KV cache "
            "alone: name the gpu, and it is computed",
        )
    for key, wanted in (
        ("enable_kv_cache_reuse", plan.prefix_caching),
        ("enable_chunked_context", plan.chunked_prefill),
    ):
        if wanted is not None:
            found[key] = str(wanted).lower()
    if devices:  # of one instance by commas, of several by semicolons
        found["gpu_device_ids"] = ";".join(",".join(map(str, gpus)) for gpus in devices)
    if plan.lora is not None:
        fields.take("lora.rank_max")
        found["lora_cache_max_adapter_size"] = str(plan.lora.rank_max)
        fields.warn("lora.slots", "not told to Triton: its adapter cache is a share of memory")
        fields.take("lora.adapters")
        if plan.lora.adapters:
            fields.warn(
                "lora.adapters", "not told to Triton: requests bring their adapters' weights"
            )
    lines: list[str] = []
    for key, value in found.items():
        lines += ["parameters {", f"  key: {_text(key)}"]
        lines += [f"  value {{ string_value: {_text(value)} }}", "}"]
    return lines


def _text(text: str) -> str:
    """A string of protobuf's text format: what JSON writes is one, where all of it is ASCII."""
    escaped = msgspec.json.encode(text).decode()
    return "".join(
        char if ord(char) < 128 else "".join(f"\\x{byte:02x}" for byte in char.encode())
        for char in escaped
    )
