"""vLLM's command line, and the file of its --config, out of a plan."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.engines.configuration.configuration import Configuration, PlanFields
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["vllm_arguments", "vllm_configuration"]

_TITLE: Final = "vLLM"
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_KV: Final = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
    "fp4": "nvfp4",
}
_WEIGHTS: Final = {
    "fp8": "fp8",
    "int8": "compressed-tensors",
    "awq": "awq",
    "gptq": "gptq",
    "fp4": "modelopt_fp4",
}
_BLOCK_STEP: Final = 16
_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Those that --max-lora-rank takes."""
_LORA_ENVIRONMENT: Final = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


def vllm_arguments(plan: EnginePlan, instance: int = 0) -> tuple[str, ...]:
    """What follows `vllm serve MODEL` (or `--model MODEL`) for one instance of the plan.

    Raises ConfigError for what vLLM has not.
    """
    words: list[str] = []
    for name, value in _options(PlanFields(plan, _TITLE), instance).items():
        option = f"--{name}"
        if value is True:
            words.append(option)
        elif value is False:
            words.append(f"--no-{name}")
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        elif isinstance(value, dict):
            words += [option, msgspec.json.encode(value).decode()]
        else:
            words += [option, str(value)]
    return tuple(words)


def vllm_configuration(plan: EnginePlan) -> Configuration:
    """One command for each instance, and config.yaml with the same for the first.

    Raises ConfigError for what vLLM has not.
    """
    fields = PlanFields(plan, _TITLE)
    options = _options(fields, 0)
    lora = plan.lora is not None
    return Configuration(
        engine="vllm",
        commands=tuple(
            ("vllm", "serve", plan.model, *vllm_arguments(plan, instance))
            for instance in range(plan.instances)
        ),
        environment=_LORA_ENVIRONMENT if lora else {},
        files={"config.yaml": _yaml({"model": plan.model, **options})},
        warnings=fields.warnings(),
    )


def _yaml(options: dict[str, Any]) -> str:
    return msgspec.yaml.encode(options).decode()


def _options(fields: PlanFields, instance: int) -> dict[str, Any]:
    """vLLM's options without their dashes -> values."""
    plan = fields.plan
    block = plan.block_tokens
    if block is not None and block % _BLOCK_STEP:
        expected = f"a multiple of {_BLOCK_STEP}, which its attention kernels take"
        raise fields.refuse("block_tokens", block, expected)
    found: dict[str, Any] = {
        "served-model-name": [plan.served_name] if plan.served_name else None,
        "host": plan.host,
        "port": plan.port + instance,
        "tensor-parallel-size": plan.tensor_parallel if plan.tensor_parallel > 1 else None,
        "pipeline-parallel-size": plan.pipeline_parallel if plan.pipeline_parallel > 1 else None,
        "dtype": plan.dtype and fields.choice("dtype", plan.dtype, _DTYPES),
        "quantization": plan.weights and fields.choice("weights", plan.weights, _WEIGHTS),
        "kv-cache-dtype": plan.kv_dtype and fields.choice("kv_dtype", plan.kv_dtype, _KV),
        "max-model-len": plan.context_max_tokens,
        "max-num-seqs": plan.running_max,
        "max-num-batched-tokens": plan.step_tokens_max,
        "gpu-memory-utilization": plan.instance_memory_ratio,
        "block-size": block,
        "enable-prefix-caching": plan.prefix_caching,
        "enable-chunked-prefill": plan.chunked_prefill,
    }
    fields.take("model", "served_name", "host", "port", "tensor_parallel", "pipeline_parallel")
    fields.take("context_max_tokens", "running_max", "step_tokens_max", "gpu_memory_ratio")
    fields.take("block_tokens", "prefix_caching", "chunked_prefill", "graph_sizes", "instances")
    if plan.graph_sizes is not None:
        if plan.graph_sizes:
            found["cudagraph-capture-sizes"] = list(plan.graph_sizes)
        else:
            found["enforce-eager"] = True
    found |= _lora(fields) | _speculation(fields)
    return {name: value for name, value in found.items() if value is not None}


def _lora(fields: PlanFields) -> dict[str, Any]:
    lora = fields.plan.lora
    if lora is None:
        return {}
    fields.take("lora")
    rank = next((each for each in _RANKS if each >= lora.rank_max), None)
    if rank is None:
        raise fields.refuse("lora.rank_max", lora.rank_max, f"up to {_RANKS[-1]}")
    modules = [
        msgspec.json.encode({"name": name, "path": path}).decode()
        for name, path in lora.adapters.items()
    ]
    return {
        "enable-lora": True,
        "max-loras": lora.slots,
        "max-lora-rank": rank,
        "lora-modules": modules or None,
    }


def _speculation(fields: PlanFields) -> dict[str, Any]:
    speculation = fields.plan.speculation
    if speculation is None:
        return {}
    fields.take("speculation")
    if speculation.method == "ngram":
        config: dict[str, Any] = {"method": "ngram"}
    else:
        config = {"method": "draft_model", "model": speculation.model}
    return {"speculative-config": config | {"num_speculative_tokens": speculation.tokens}}
