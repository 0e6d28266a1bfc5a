"""TensorRT-LLM: trtllm-build's flags, and trtllm-serve with its YAML, out of a plan."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final

import msgspec

from mileage.engines.configuration.cache_size import CacheSize
from mileage.engines.configuration.configuration import Configuration, PlanFields
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["trtllm_build_arguments", "trtllm_configuration", "trtllm_options"]

_TITLE: Final = "TensorRT-LLM"
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_KV: Final = {"bf16": "auto", "fp16": "auto", "fp8": "fp8", "fp4": "nvfp4"}
"""auto: as the checkpoint says, which is what the model computes in unless that was quantised."""
_FILE: Final = "config.yaml"
_NGRAM_MATCH: Final = 3
"""Words that must be the same for what followed them to be guessed: two match by chance."""
_AT_CONVERSION: Final = "decided when the checkpoint is converted and quantised"


def trtllm_configuration(
    plan: EnginePlan, cache: CacheSize | None = None, directory: PurePath | None = None
) -> Configuration:
    """trtllm-build where an engine is built, then trtllm-serve for each instance, and its YAML.

    `cache`: what was computed of one instance's KV cache; `directory`: where the YAML will be.
    Raises ConfigError for what TensorRT-LLM has not.
    """
    fields = PlanFields(plan, _TITLE)
    file = str((directory or PurePath()) / _FILE)
    built = plan.trtllm.backend == "tensorrt"
    options = trtllm_options(plan, cache, fields)
    model = plan.trtllm.engine_dir if built else plan.model
    serve = ["trtllm-serve", model, "--host", plan.host]
    commands = [
        (*serve, "--port", str(plan.port + instance), "--backend", plan.trtllm.backend)
        for instance in range(plan.instances)
    ]
    commands = [(*words, "--config", file) for words in commands]
    if built:
        commands.insert(0, ("trtllm-build", *trtllm_build_arguments(plan, fields)))
        commands = [
            (*words, "--tokenizer", plan.model) if at else words
            for at, words in enumerate(commands)
        ]
    return Configuration(
        engine="trtllm",
        commands=tuple(commands),
        files={_FILE: msgspec.yaml.encode(options).decode()},
        warnings=fields.warnings(),
        kv_cache=cache,
    )


def trtllm_build_arguments(plan: EnginePlan, fields: PlanFields | None = None) -> tuple[str, ...]:
    """What follows `trtllm-build`: an engine with a paged KV cache. Raises ConfigError for what
    it has not."""
    fields = fields or PlanFields(plan, _TITLE)
    words = ["--checkpoint_dir", plan.trtllm.checkpoint, "--output_dir", plan.trtllm.engine_dir]
    words += ["--kv_cache_type", "paged"]
    # What reads a prompt in parts, and one whose beginning is in the cache already.
    words += ["--use_paged_context_fmha", "enable"]
    for option, value in (
        ("--max_batch_size", plan.running_max),
        ("--max_num_tokens", plan.step_tokens_max),
        # Else a prompt may have 1024 tokens only.
        ("--max_input_len", plan.context_max_tokens),
        ("--max_seq_len", plan.context_max_tokens),
        ("--tokens_per_block", plan.block_tokens),
    ):
        if value is not None:
            words += [option, str(value)]
    for name in ("tensor_parallel", "pipeline_parallel"):
        if getattr(plan, name) > 1:
            fields.warn(name, f"trtllm-build is not told: {_AT_CONVERSION}")
    gpus = plan.tensor_parallel * plan.pipeline_parallel
    if gpus > 1:
        words += ["--workers", str(gpus)]
    if plan.lora is not None:
        fields.take("lora")
        words += ["--lora_plugin", "auto", "--max_lora_rank", str(plan.lora.rank_max)]
        if plan.lora.adapters:
            words += ["--lora_dir", *plan.lora.adapters.values()]
    return tuple(words)


def trtllm_options(
    plan: EnginePlan, cache: CacheSize | None = None, fields: PlanFields | None = None
) -> dict[str, Any]:
    """The YAML of trtllm-serve's --config, as a mapping. Raises ConfigError for what it has not."""
    fields = fields or PlanFields(plan, _TITLE)
    built = plan.trtllm.backend == "tensorrt"
    fields.take("model", "host", "port", "instances", "trtllm")
    fields.take("tensor_parallel", "pipeline_parallel", "context_max_tokens", "running_max")
    fields.take("step_tokens_max", "chunked_prefill")
    if plan.served_name is not None:
        shown = plan.model.rstrip("/").rpartition("/")[2]
        fields.warn("served_name", f"trtllm-serve has no such option: it serves {shown}")
    if plan.weights is not None:
        reason = _AT_CONVERSION if built else "it serves the checkpoint as that is quantised"
        fields.warn("weights", f"not told to TensorRT-LLM: {reason}")
    options: dict[str, Any] = {
        "tensor_parallel_size": plan.tensor_parallel,
        "pipeline_parallel_size": plan.pipeline_parallel,
        "dtype": None if plan.dtype is None else _dtype(fields, built),
        "max_batch_size": plan.running_max,
        "max_num_tokens": plan.step_tokens_max,
        "max_seq_len": plan.context_max_tokens,
        "enable_chunked_prefill": plan.chunked_prefill,
    }
    options = {name: value for name, value in options.items() if value is not None}
    options["kv_cache_config"] = _cache(fields, cache, built)
    if not built:
        options |= _graphs(fields) | _lora(fields) | _speculation(fields) | _queue(fields)
    return options


def _dtype(fields: PlanFields, built: bool) -> str | None:
    assert fields.plan.dtype is not None
    if built:
        fields.warn("dtype", f"not told to TensorRT-LLM: {_AT_CONVERSION}")
        return None
    return fields.choice("dtype", fields.plan.dtype, _DTYPES)


def _cache(fields: PlanFields, cache: CacheSize | None, built: bool) -> dict[str, Any]:
    plan = fields.plan
    fields.take("prefix_caching", "block_tokens")
    found: dict[str, Any] = {}
    if plan.prefix_caching is not None:
        found["enable_block_reuse"] = plan.prefix_caching
    if plan.kv_dtype is not None and built:
        fields.warn("kv_dtype", f"not told to TensorRT-LLM: {_AT_CONVERSION}")
    elif plan.kv_dtype is not None:
        found["dtype"] = fields.choice("kv_dtype", plan.kv_dtype, _KV)
        if found["dtype"] == "auto":
            fields.warn("kv_dtype", "TensorRT-LLM is told auto: as the checkpoint says")
    block = plan.block_tokens
    if block is not None and block & (block - 1):
        raise fields.refuse("block_tokens", block, "a power of two")
    if block is not None and not built:  # an engine has that which it was built with
        found["tokens_per_block"] = block
    if cache is not None:
        fields.take("gpu_memory_ratio")
        if not built:
            found["tokens_per_block"] = cache.block_tokens
        found["max_tokens"] = cache.tokens
        found["free_gpu_memory_fraction"] = cache.free_ratio
    elif (ratio := plan.instance_memory_ratio) is not None:
        found["free_gpu_memory_fraction"] = ratio
        fields.warn(
            "gpu_memory_ratio",
            "TensorRT-LLM's share is of what is free once the weights are there, for the KV cache "
            "alone: name the gpu, and it is computed",
        )
    return found


def _graphs(fields: PlanFields) -> dict[str, Any]:
    sizes = fields.plan.graph_sizes
    fields.take("graph_sizes")
    if sizes is None:
        return {}
    if not sizes:
        return {"cuda_graph_config": None}
    # Without padding only batches of exactly these sizes have a graph.
    return {"cuda_graph_config": {"batch_sizes": list(sizes), "enable_padding": True}}


def _lora(fields: PlanFields) -> dict[str, Any]:
    lora = fields.plan.lora
    if lora is None:
        return {}
    fields.take("lora")
    if len(lora.adapters) > 1:
        fields.warn(
            "lora.adapters",
            "TensorRT-LLM is told the directories; each request brings its adapter's name, number "
            "and path itself",
        )
    config: dict[str, Any] = {"max_lora_rank": lora.rank_max, "max_loras": lora.slots}
    if lora.adapters:
        config["lora_dir"] = list(lora.adapters.values())
    return {"lora_config": config}


def _speculation(fields: PlanFields) -> dict[str, Any]:
    speculation = fields.plan.speculation
    if speculation is None:
        return {}
    fields.take("speculation")
    config: dict[str, Any] = {"max_draft_len": speculation.tokens}
    if speculation.model is None:
        config |= {"decoding_type": "NGram", "max_matching_ngram_size": _NGRAM_MATCH}
    else:
        config |= {"decoding_type": "Draft_Target", "speculative_model": speculation.model}
    return {"speculative_config": config}


def _queue(fields: PlanFields) -> dict[str, Any]:
    delay = fields.plan.queue_delay_ms
    fields.take("queue_delay_ms")
    return {} if delay is None else {"batch_wait_timeout_ms": delay}
