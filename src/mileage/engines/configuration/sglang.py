"""SGLang's command line out of a plan."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.engines.configuration.cache_size import CacheSize
from mileage.engines.configuration.configuration import Configuration, PlanFields
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["sglang_arguments", "sglang_configuration"]

_TITLE: Final = "SGLang"
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_KV: Final = {"bf16": "bfloat16", "fp8": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "fp4": "nvfp4"}
_WEIGHTS: Final = {
    "fp8": "fp8",
    "int8": "w8a8_int8",
    "awq": "awq",
    "gptq": "gptq",
    "fp4": "modelopt_fp4",
}
_COMMAND: Final = ("python3", "-m", "sglang.launch_server")
_IN_TURN: Final = (
    "start them in turn, each once the one before it serves: SGLang's share is of the memory that "
    "is free when it starts"
)


def sglang_arguments(
    plan: EnginePlan, instance: int = 0, cache: CacheSize | None = None
) -> tuple[str, ...]:
    """What follows `python3 -m sglang.launch_server` for one instance of the plan, the model with
    it. `cache`: what was computed of its KV cache. Raises ConfigError for what SGLang has not."""
    return _arguments(PlanFields(plan, _TITLE), instance, cache)


def sglang_configuration(plan: EnginePlan, cache: CacheSize | None = None) -> Configuration:
    """One command for each instance. Raises ConfigError for what SGLang has not."""
    fields = PlanFields(plan, _TITLE)
    _arguments(fields, 0, cache)
    return Configuration(
        engine="sglang",
        commands=tuple(
            (*_COMMAND, *sglang_arguments(plan, instance, cache))
            for instance in range(plan.instances)
        ),
        warnings=fields.warnings(),
        kv_cache=cache,
    )


def _arguments(fields: PlanFields, instance: int, cache: CacheSize | None) -> tuple[str, ...]:
    plan = fields.plan
    words = ["--model-path", plan.model, "--host", plan.host, "--port", str(plan.port + instance)]
    words += ["--enable-metrics"]
    for option, value in (
        ("--served-model-name", plan.served_name),
        ("--tp-size", plan.tensor_parallel if plan.tensor_parallel > 1 else None),
        ("--pp-size", plan.pipeline_parallel if plan.pipeline_parallel > 1 else None),
        ("--dtype", plan.dtype and fields.choice("dtype", plan.dtype, _DTYPES)),
        ("--quantization", plan.weights and fields.choice("weights", plan.weights, _WEIGHTS)),
        ("--kv-cache-dtype", plan.kv_dtype and fields.choice("kv_dtype", plan.kv_dtype, _KV)),
        ("--context-length", plan.context_max_tokens),
        ("--max-running-requests", plan.running_max),
        ("--page-size", plan.block_tokens),
    ):
        if value is not None:
            words += [option, str(value)]
    fields.take("model", "served_name", "host", "port", "instances")
    fields.take("tensor_parallel", "pipeline_parallel")
    fields.take("context_max_tokens", "running_max", "block_tokens", "prefix_caching")
    if plan.prefix_caching is False:  # it has one unless told otherwise
        words.append("--disable-radix-cache")
    words += [*_prefill(fields), *_memory(fields, instance, cache), *_graphs(fields)]
    words += [*_lora(fields), *_speculation(fields)]
    return tuple(words)


def _prefill(fields: PlanFields) -> list[str]:
    plan = fields.plan
    fields.take("chunked_prefill", "step_tokens_max")
    step = plan.step_tokens_max
    words = [] if step is None else ["--max-prefill-tokens", str(step)]
    if plan.chunked_prefill is False:
        words += ["--chunked-prefill-size", "-1"]
    elif step is not None:
        words += ["--chunked-prefill-size", str(step)]
    if step is not None:
        fields.warn(
            "step_tokens_max",
            "SGLang's limits are of prompt tokens: answers have steps of their own",
        )
    return words


def _memory(fields: PlanFields, instance: int, cache: CacheSize | None) -> list[str]:
    ratio = fields.plan.instance_memory_ratio
    if fields.plan.instances > 1 and (cache is not None or ratio is not None):
        fields.warn("instances", _IN_TURN)
    if cache is not None:
        fields.take("gpu_memory_ratio")
        return ["--mem-fraction-static", f"{cache.static_ratios[instance]:g}"]
    if ratio is None:
        return []
    fields.warn(
        "gpu_memory_ratio",
        "SGLang's share is of weights and KV cache, and steps need memory beside it: lower it if "
        "memory runs out, or name the gpu",
    )
    share = int(1000 * ratio / (1 - instance * ratio)) / 1000  # of what those before it leave
    return ["--mem-fraction-static", f"{max(0.001, share):g}"]


def _graphs(fields: PlanFields) -> list[str]:
    sizes = fields.plan.graph_sizes
    fields.take("graph_sizes")
    if sizes is None:
        return []
    if not sizes:
        return ["--disable-decode-cuda-graph", "--disable-prefill-cuda-graph"]
    return ["--cuda-graph-bs-decode", *map(str, sizes)]


def _lora(fields: PlanFields) -> list[str]:
    lora = fields.plan.lora
    if lora is None:
        return []
    fields.take("lora")
    # One slot of SGLang's is for requests without an adapter.
    words = ["--enable-lora", "--max-loras-per-batch", str(lora.slots + 1)]
    words += ["--max-lora-rank", str(lora.rank_max)]
    if not lora.adapters:  # what they change cannot be seen of them yet
        return [*words, "--lora-target-modules", "all"]
    adapters = [
        msgspec.json.encode({"lora_name": name, "lora_path": path}).decode()
        for name, path in lora.adapters.items()
    ]
    return [*words, "--lora-paths", *adapters]


def _speculation(fields: PlanFields) -> list[str]:
    speculation = fields.plan.speculation
    if speculation is None:
        return []
    fields.take("speculation")
    guessed = str(speculation.tokens + 1)  # SGLang counts the token that is always right, too
    if speculation.model is None:
        return ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", guessed]
    return [
        *("--speculative-algorithm", "STANDALONE"),
        *("--speculative-draft-model-path", speculation.model),
        *("--speculative-num-steps", str(speculation.tokens)),
        *("--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", guessed),
    ]
