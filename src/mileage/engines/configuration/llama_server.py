"""The command line of llama.cpp's llama-server out of a plan."""

from __future__ import annotations

from typing import Final

from mileage.engines.configuration.configuration import Configuration, PlanFields
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["llama_server_arguments", "llama_server_configuration"]

_TITLE: Final = "llama.cpp"
_GGUF: Final = ".gguf"
_KV: Final = {"bf16": "bf16", "fp16": "f16", "int8": "q8_0", "int4": "q4_0"}
_UBATCH_MAX: Final = 512
"""llama.cpp's own: tokens computed at once; more take memory for activations, and gain little."""
_SLOTS_MAX: Final = 256
_DEVICES_MAX: Final = 15
_CONTEXT_MAX: Final = (1 << 31) - 1
_REUSE_TOKENS: Final = 256
"""The shortest piece behind a changed beginning whose cache is moved up and kept."""


def llama_server_arguments(plan: EnginePlan, instance: int = 0) -> tuple[str, ...]:
    """What follows `llama-server` for one instance of the plan, the model with it.

    Raises ConfigError for what llama.cpp has not.
    """
    return _arguments(PlanFields(plan, _TITLE), instance)


def llama_server_configuration(plan: EnginePlan) -> Configuration:
    """One command for each instance. Raises ConfigError for what llama.cpp has not."""
    fields = PlanFields(plan, _TITLE)
    _arguments(fields, 0)
    return Configuration(
        engine="llamacpp",
        commands=tuple(
            ("llama-server", *llama_server_arguments(plan, instance))
            for instance in range(plan.instances)
        ),
        warnings=fields.warnings(),
    )


def _arguments(fields: PlanFields, instance: int) -> tuple[str, ...]:
    plan = fields.plan
    words = ["--model", plan.model]
    if not plan.model.endswith(_GGUF):
        words[0] = "--hf-repo"
        fields.warn("model", "no GGUF file: taken as a repository of GGUF files on the hub")
    if plan.served_name is not None:
        words += ["--alias", plan.served_name]
    words += ["--host", plan.host, "--port", str(plan.port + instance), "--metrics"]
    words += [*_slots(fields), *_batch(fields), *_cache(fields), *_devices(fields)]
    words += [*_lora(fields), *_speculation(fields)]
    fields.take("model", "served_name", "host", "port", "instances")
    if plan.weights is not None:
        fields.warn("weights", "not told to llama.cpp: a GGUF file says how it is quantised")
    if plan.dtype is not None:
        fields.warn("dtype", "not told to llama.cpp: a GGUF file has its own")
    return tuple(words)


def _slots(fields: PlanFields) -> list[str]:
    """-c is of all slots together; a slot has its share of it."""
    plan = fields.plan
    fields.take("context_max_tokens", "running_max")
    slots = plan.running_max
    if slots is not None and slots > _SLOTS_MAX:
        raise fields.refuse("running_max", slots, f"up to {_SLOTS_MAX} slots")
    words = [] if slots is None else ["--parallel", str(slots)]
    if plan.context_max_tokens is not None:
        if slots is None:
            slots = 1
            words = ["--parallel", "1"]
            fields.warn(
                "running_max",
                "unset: one slot, since llama.cpp divides --ctx-size by the number of slots",
            )
        total = plan.context_max_tokens * slots
        if total > _CONTEXT_MAX:
            expected = f"up to {_CONTEXT_MAX // slots}, with {slots} slots"
            raise fields.refuse("context_max_tokens", plan.context_max_tokens, expected)
        words += ["--ctx-size", str(total), "--no-kv-unified"]
    elif slots is not None and slots > 1:
        fields.warn(
            "context_max_tokens",
            f"unset: {slots} slots share the context that the model was made for",
        )
    return words


def _batch(fields: PlanFields) -> list[str]:
    plan = fields.plan
    fields.take("step_tokens_max")
    if plan.chunked_prefill:
        fields.take("chunked_prefill")  # a prompt is always computed in parts of --batch-size
    elif plan.chunked_prefill is not None:
        fields.warn("chunked_prefill", "llama.cpp always computes prompts in parts of a step")
    if plan.step_tokens_max is None:
        return []
    step = plan.step_tokens_max
    return ["--batch-size", str(step), "--ubatch-size", str(min(step, _UBATCH_MAX))]


def _cache(fields: PlanFields) -> list[str]:
    plan = fields.plan
    words: list[str] = []
    if plan.kv_dtype is not None:
        kind = fields.choice("kv_dtype", plan.kv_dtype, _KV)
        words += ["--cache-type-k", kind, "--cache-type-v", kind]
        # A quantised V is only read by the flash-attention kernels.
        words += ["--flash-attn", "on" if kind in ("q8_0", "q4_0") else "auto"]
    fields.take("prefix_caching")
    if plan.prefix_caching:
        words += ["--cache-prompt", "--cache-reuse", str(_REUSE_TOKENS)]
    elif plan.prefix_caching is not None:
        words += ["--no-cache-prompt"]
    return words


def _devices(fields: PlanFields) -> list[str]:
    plan = fields.plan
    stages, shards = plan.pipeline_parallel, plan.tensor_parallel
    for name, devices in (("tensor_parallel", shards), ("pipeline_parallel", stages)):
        if devices > _DEVICES_MAX:
            raise fields.refuse(name, devices, f"up to {_DEVICES_MAX} GPUs")
    if shards > 1:
        fields.take("tensor_parallel")
        if stages > 1:
            fields.warn("pipeline_parallel", "llama.cpp cuts layers or stacks them, and not both")
        return ["--split-mode", "row", "--tensor-split", ",".join(["1"] * shards)]
    if stages > 1:
        fields.take("pipeline_parallel")
        return ["--split-mode", "layer", "--tensor-split", ",".join(["1"] * stages)]
    return []


def _lora(fields: PlanFields) -> list[str]:
    lora = fields.plan.lora
    if lora is None:
        return []
    fields.warn("lora.slots", "llama.cpp holds every adapter that it was started with")
    fields.warn("lora.rank_max", "llama.cpp makes room for the ranks that its adapters have")
    if not lora.adapters:
        fields.warn("lora.adapters", "none: llama.cpp loads adapters at its start only")
        return []
    numbers = ", ".join(f"{at} is {name}" for at, name in enumerate(lora.adapters))
    fields.warn("lora.adapters", f"llama.cpp knows adapters by number, in requests too: {numbers}")
    # Without it all adapters are in force for requests that name none.
    paths = ",".join(map(_csv, lora.adapters.values()))
    return ["--lora", paths, "--lora-init-without-apply"]


def _csv(text: str) -> str:
    """A cell of a row of comma-separated values, which --lora takes."""
    return '"' + text.replace('"', '""') + '"' if set(text) & {",", '"'} else text


def _speculation(fields: PlanFields) -> list[str]:
    speculation = fields.plan.speculation
    if speculation is None:
        return []
    fields.take("speculation")
    if speculation.model is None:
        fields.warn("speculation.method", "ngram: of llama.cpp's kinds it is ngram-simple")
        tokens = ["--spec-ngram-simple-size-m", str(speculation.tokens)]
        return ["--spec-type", "ngram-simple", *tokens]
    option = "--spec-draft-model" if speculation.model.endswith(_GGUF) else "--spec-draft-hf"
    words = ["--spec-type", "draft-simple", option, speculation.model]
    return [*words, "--spec-draft-n-max", str(speculation.tokens)]
