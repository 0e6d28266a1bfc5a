"""Arguments of an engine, by the names that it gives them, as settings of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, NamedTuple

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.setting_values import (
    as_count,
    as_flag,
    as_number,
    as_ratio,
    as_text,
    kv_dtype,
    weight_dtype,
)
from mileage.doctor.collect.speculation_settings import speculation_settings

__all__ = ["argument_facts", "is_flag"]

Read = Callable[[object], Any]


def _not_flag(value: object) -> bool | None:
    flag = as_flag(value)
    return None if flag is None else not flag


def _more_than_one(value: object) -> bool | None:
    count = as_count(value)
    return None if count is None else count > 1


def _above_zero(value: object) -> int | None:
    return as_count(value) or None


def _tokenizer_mode(value: object) -> str | None:
    return "slow" if value == "slow" else "fast" if value == "auto" else None


def _role(value: object) -> str | None:
    return {
        "null": "none",
        "prefill": "prefill",
        "decode": "decode",
        "kv_producer": "prefill",
        "kv_consumer": "decode",
    }.get(str(value))


def _scheduler_policy(value: object) -> str | None:
    word = str(value).rpartition(".")[2].lower()
    return word if word in ("guaranteed_no_evict", "max_utilization") else None


def _load_strategy(value: object) -> str | None:
    return value if value in ("lazy", "eager") and isinstance(value, str) else None


class _Argument(NamedTuple):
    setting: str
    read: Read


_VLLM: Final[Mapping[str, _Argument]] = {
    "tensor_parallel_size": _Argument("tensor_parallel_size", _above_zero),
    "pipeline_parallel_size": _Argument("pipeline_parallel_size", _above_zero),
    "data_parallel_size": _Argument("data_parallel_size", _above_zero),
    "enable_expert_parallel": _Argument("enable_expert_parallel", as_flag),
    "max_num_seqs": _Argument("max_num_seqs", _above_zero),
    "max_num_batched_tokens": _Argument("max_num_batched_tokens", _above_zero),
    "max_model_len": _Argument("max_model_len", _above_zero),
    "max_seq_len": _Argument("max_model_len", _above_zero),
    "gpu_memory_utilization": _Argument("gpu_memory_utilization", as_ratio),
    "enforce_eager": _Argument("enforce_eager", as_flag),
    "enable_prefix_caching": _Argument("enable_prefix_caching", as_flag),
    "enable_chunked_prefill": _Argument("enable_chunked_prefill", as_flag),
    "chunked_prefill_enabled": _Argument("enable_chunked_prefill", as_flag),
    "block_size": _Argument("block_size", _above_zero),
    "kv_cache_dtype": _Argument("kv_cache_dtype", kv_dtype),
    "cpu_offload_gb": _Argument("cpu_offload_gb", as_number),
    "swap_space": _Argument("swap_space", as_number),
    "preemption_mode": _Argument("preemption_mode", as_text),
    "disable_custom_all_reduce": _Argument("disable_custom_all_reduce", as_flag),
    "enable_lora": _Argument("enable_lora", as_flag),
    "max_loras": _Argument("max_loras", _above_zero),
    "max_cpu_loras": _Argument("max_cpu_loras", _above_zero),
    "max_lora_rank": _Argument("max_lora_rank", _above_zero),
    "guided_decoding_backend": _Argument("structured_output_backend", as_text),
    "tokenizer_mode": _Argument("tokenizer_mode", _tokenizer_mode),
    "api_server_count": _Argument("api_server_count", _above_zero),
    "safetensors_load_strategy": _Argument("safetensors_load_strategy", _load_strategy),
    "structured_outputs_config.backend": _Argument("structured_output_backend", as_text),
    "decoding_config.backend": _Argument("structured_output_backend", as_text),
    "guided_decoding_config.backend": _Argument("structured_output_backend", as_text),
    "kv_transfer_config.kv_role": _Argument("disaggregation_mode", _role),
}
_SGLANG: Final[Mapping[str, _Argument]] = {
    "tp_size": _Argument("tensor_parallel_size", _above_zero),
    "tensor_parallel_size": _Argument("tensor_parallel_size", _above_zero),
    "pp_size": _Argument("pipeline_parallel_size", _above_zero),
    "pipeline_parallel_size": _Argument("pipeline_parallel_size", _above_zero),
    "dp_size": _Argument("data_parallel_size", _above_zero),
    "data_parallel_size": _Argument("data_parallel_size", _above_zero),
    "ep_size": _Argument("enable_expert_parallel", _more_than_one),
    "enable_ep_moe": _Argument("enable_expert_parallel", as_flag),
    "max_running_requests": _Argument("max_num_seqs", _above_zero),
    "chunked_prefill_size": _Argument("max_num_batched_tokens", _above_zero),
    "context_length": _Argument("max_model_len", _above_zero),
    "context_len": _Argument("max_model_len", _above_zero),
    "mem_fraction_static": _Argument("gpu_memory_utilization", as_ratio),
    "disable_cuda_graph": _Argument("enforce_eager", as_flag),
    "disable_radix_cache": _Argument("enable_prefix_caching", _not_flag),
    "page_size": _Argument("block_size", _above_zero),
    "kv_cache_dtype": _Argument("kv_cache_dtype", kv_dtype),
    "cpu_offload_gb": _Argument("cpu_offload_gb", as_number),
    "disable_custom_all_reduce": _Argument("disable_custom_all_reduce", as_flag),
    "enable_lora": _Argument("enable_lora", as_flag),
    "max_loras_per_batch": _Argument("max_loras", _above_zero),
    "max_loaded_loras": _Argument("max_cpu_loras", _above_zero),
    "max_lora_rank": _Argument("max_lora_rank", _above_zero),
    "grammar_backend": _Argument("structured_output_backend", as_text),
    "tokenizer_mode": _Argument("tokenizer_mode", _tokenizer_mode),
    "tokenizer_worker_num": _Argument("tokenizer_threads", _above_zero),
    "max_total_tokens": _Argument("max_tokens_in_paged_kv_cache", _above_zero),
    "num_reserved_decode_tokens": _Argument("num_reserved_decode_tokens", _above_zero),
    "disaggregation_mode": _Argument("disaggregation_mode", _role),
}
_TRTLLM: Final[Mapping[str, _Argument]] = {
    "tp_size": _Argument("tensor_parallel_size", _above_zero),
    "tensor_parallel_size": _Argument("tensor_parallel_size", _above_zero),
    "pp_size": _Argument("pipeline_parallel_size", _above_zero),
    "pipeline_parallel_size": _Argument("pipeline_parallel_size", _above_zero),
    "ep_size": _Argument("enable_expert_parallel", _more_than_one),
    "moe_expert_parallel_size": _Argument("enable_expert_parallel", _more_than_one),
    "max_batch_size": _Argument("max_num_seqs", _above_zero),
    "max_num_tokens": _Argument("max_num_batched_tokens", _above_zero),
    "max_seq_len": _Argument("max_model_len", _above_zero),
    "enable_chunked_prefill": _Argument("enable_chunked_prefill", as_flag),
    "kv_cache_config.enable_block_reuse": _Argument("enable_prefix_caching", as_flag),
    "kv_cache_config.tokens_per_block": _Argument("block_size", _above_zero),
    "kv_cache_config.max_tokens": _Argument("max_tokens_in_paged_kv_cache", _above_zero),
    "kv_cache_config.dtype": _Argument("kv_cache_dtype", kv_dtype),
    "scheduler_config.capacity_scheduler_policy": _Argument("scheduler.policy", _scheduler_policy),
    "guided_decoding_backend": _Argument("structured_output_backend", as_text),
}
_LLAMACPP: Final[Mapping[str, _Argument]] = {
    "parallel": _Argument("max_num_seqs", _above_zero),
    "batch_size": _Argument("max_num_batched_tokens", _above_zero),
    "cache_type_k": _Argument("kv_cache_dtype", kv_dtype),
    "cache_prompt": _Argument("enable_prefix_caching", as_flag),
    "threads_http": _Argument("tokenizer_threads", _above_zero),
}
_ARGUMENTS: Final[Mapping[str, Mapping[str, _Argument]]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "tensorrt-llm": _TRTLLM,
    "llama.cpp": _LLAMACPP,
}
_MODELS: Final = ("served_model_name", "model", "model_path", "model_tag", "alias")
_GRAPHS_OFF: Final = ("NONE", "<CUDAGraphMode.NONE: 0>", 0)
_CHUNKS_OFF: Final = -1


def is_flag(engine: str, name: str) -> bool:
    """Is the argument one that stands alone on a command line?"""
    argument = _ARGUMENTS.get(engine, {}).get(name)
    return argument is not None and argument.read in (as_flag, _not_flag)


def argument_facts(engine: str, arguments: Mapping[str, Any]) -> FactsDocument:
    """The facts that arguments tell; `engine` by the doctor's name for it.

    An argument of None is not known: the engine fills it in. But `quantization` and speculation are
    known to be off then, for nothing turns them on unasked (a checkpoint may be quantised itself).
    """
    flat = _flat(arguments)
    settings: dict[str, Any] = {}
    for name, (setting, read) in _ARGUMENTS.get(engine, {}).items():
        if flat.get(name) is not None:
            value = read(flat[name])
            if value is not None:
                settings.setdefault(setting, value)
    if "quantization" in arguments:
        settings["quantization"] = as_text(arguments["quantization"])
    settings |= speculation_settings(engine, arguments) | _by_engine(engine, flat, arguments)
    return facts_document(
        engine={"name": engine},
        model=_model(arguments, settings),
        hardware={"count": _gpus(engine, settings, arguments)},
        settings=settings,
    )


def _by_engine(
    engine: str, flat: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """What takes more than one argument to tell."""
    settings: dict[str, Any] = {}
    if engine == "vllm":
        if flat.get("compilation_config.cudagraph_mode") in _GRAPHS_OFF:
            settings["enforce_eager"] = True
        if as_flag(flat.get("disable_frontend_multiprocessing")):
            settings["api_server_mode"] = "in_process"
    elif engine == "sglang":
        if as_number(flat.get("chunked_prefill_size")) == _CHUNKS_OFF:
            settings["enable_chunked_prefill"] = False
        elif as_count(flat.get("chunked_prefill_size")):
            settings["enable_chunked_prefill"] = True
        if arguments.get("lora_paths"):
            settings["enable_lora"] = True
    elif engine == "llama.cpp":
        slots, context = as_count(flat.get("parallel")), as_count(flat.get("ctx_size"))
        if slots and context and not flat.get("kv_unified"):
            settings["max_model_len"] = context // slots
        if "lora" in flat:
            settings["enable_lora"] = True
    return settings


def _model(arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    names = (arguments.get(key) for key in _MODELS)
    flat = (name[0] if isinstance(name, list) and name else name for name in names)
    model: dict[str, Any] = {"name": next((n for n in map(as_text, flat) if n is not None), None)}
    if "quantization" in settings and settings["quantization"] is None:
        model["dtype"] = weight_dtype(arguments.get("dtype"))
    return model


def _gpus(engine: str, settings: Mapping[str, Any], arguments: Mapping[str, Any]) -> int | None:
    """Ranks of all kinds, one accelerator each; SGLang's attention ranks are tensor ranks."""
    names = ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"]
    if "tensor_parallel_size" not in settings or engine == "llama.cpp":
        return None
    if arguments.get("device_config") == "cpu" or arguments.get("device") == "cpu":
        return None
    if engine == "sglang" and as_flag(arguments.get("enable_dp_attention")):
        names.pop()
    return prod(int(settings.get(name, 1)) for name in names)


def _flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, those within another by path."""
    flat = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": part for inner, part in value.items()}
    return flat
