"""ONNX Runtime GenAI's genai_config.json out of a plan and the model's shape."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.costmodel.architecture import Architecture
from mileage.engines.configuration.configuration import Configuration, PlanFields, set_fields
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["onnx_configuration"]

_TITLE: Final = "ONNX Runtime GenAI"
_FILE: Final = "genai_config.json"
_PROVIDERS: Final = {"cuda": "cuda", "dml": "DML", "webgpu": "WebGPU"}
_EXPORTED: Final = "the ONNX file has it from its export"
_OF_CONFIG: Final = "or an architecture that is the model's config.json, which says so"
_BLOCK_TOKENS: Final = 256
"""Of a paged cache, where the plan does not say: the model builder's own."""


def onnx_configuration(plan: EnginePlan, architecture: Architecture) -> Configuration:
    """genai_config.json, which stands beside the model's file.

    Raises ConfigError where the plan lacks what the runtime must be told: family, vocabulary and
    special tokens, the longest context.
    """
    fields = PlanFields(plan, _TITLE)
    fields.take("onnx", "model")
    for name in ("dtype", "weights", "kv_dtype"):
        if name in set_fields(plan):
            fields.warn(name, f"not told to ONNX Runtime: {_EXPORTED}")
    for name in ("served_name", "host", "port"):
        if name in set_fields(plan):
            fields.warn(name, "not told to ONNX Runtime: it is a library, and no server")
    document: dict[str, Any] = {
        "model": _model(fields, architecture),
        "search": _search(fields),
    }
    if (batching := _batching(fields)) is not None:
        document["engine"] = {"dynamic_batching": batching}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return Configuration(engine="onnx", files={_FILE: f"{text}\n"}, warnings=fields.warnings())


def _model(fields: PlanFields, shape: Architecture) -> dict[str, Any]:
    plan, onnx = fields.plan, fields.plan.onnx
    if shape.mla or shape.window_layers:
        kind = "multi-head latent attention" if shape.mla else "sliding-window attention"
        raise fields.refuse("architecture", shape.name, f"a model without {kind}")
    fields.take("context_max_tokens")
    if plan.context_max_tokens is None:
        raise fields.refuse("context_max_tokens", None, "a number of tokens")
    if onnx.type is None:
        expected = f"the model's family, such as llama, {_OF_CONFIG}"
        raise fields.refuse("onnx.type", None, expected)
    if not onnx.eos_token_ids:
        expected = f"the tokens that end an answer, {_OF_CONFIG}"
        raise fields.refuse("onnx.eos_token_ids", [], expected)
    for key, tokens in (
        ("onnx.eos_token_ids", onnx.eos_token_ids),
        ("onnx.bos_token_id", () if onnx.bos_token_id is None else (onnx.bos_token_id,)),
        ("onnx.pad_token_id", () if onnx.pad_token_id is None else (onnx.pad_token_id,)),
    ):
        if tokens and max(tokens) >= shape.vocab:
            raise fields.refuse(
                key, max(tokens), f"below {shape.vocab}, the size of the vocabulary"
            )
    eos = onnx.eos_token_ids
    session: dict[str, Any] = {"log_id": "onnxruntime-genai"}
    if onnx.threads is not None:
        session["intra_op_num_threads"] = onnx.threads
    session["provider_options"] = [] if onnx.provider == "cpu" else [_provider(fields)]
    model: dict[str, Any] = {
        "type": onnx.type,
        "vocab_size": shape.vocab,
        "context_length": plan.context_max_tokens,
        "bos_token_id": onnx.bos_token_id,
        "eos_token_id": eos[0] if len(eos) == 1 else list(eos),
        "pad_token_id": eos[0] if onnx.pad_token_id is None else onnx.pad_token_id,
        "decoder": {
            "session_options": session,
            "filename": onnx.file,
            "head_size": shape.head_dim,
            "hidden_size": shape.hidden,
            "num_attention_heads": shape.heads,
            "num_hidden_layers": shape.layers,
            "num_key_value_heads": shape.kv_heads,
            # The names that the model builder gives to the graph's ends.
            "inputs": {
                "input_ids": "input_ids",
                "attention_mask": "attention_mask",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
        },
    }
    return {name: value for name, value in model.items() if value is not None}


def _provider(fields: PlanFields) -> dict[str, dict[str, str]]:
    """The provider that computes. CUDA and WebGPU capture a graph, unless told not to."""
    provider, sizes = fields.plan.onnx.provider, fields.plan.graph_sizes
    options = {}
    if sizes is not None and provider == "cuda":
        # One graph for each batch that comes: the sizes are not chosen.
        options["enable_cuda_graph"] = "1" if sizes else "0"
        if sizes:
            fields.warn("graph_sizes", "ONNX Runtime captures a graph, and is not told for what")
        else:
            fields.take("graph_sizes")
    return {_PROVIDERS[provider]: options}


def _search(fields: PlanFields) -> dict[str, Any]:
    plan = fields.plan
    fields.take("step_tokens_max", "chunked_prefill")
    search: dict[str, Any] = {
        "max_length": plan.context_max_tokens,
        "do_sample": False,
        # The cache is made once, as long as the context: a step then copies none of it.
        "past_present_share_buffer": True,
    }
    if plan.chunked_prefill is not False and plan.step_tokens_max is not None:
        search["chunk_size"] = plan.step_tokens_max
    elif plan.step_tokens_max is not None and (plan.running_max or 1) == 1:
        fields.warn("step_tokens_max", "a prompt is computed at once without chunked_prefill")
    elif plan.chunked_prefill:
        fields.warn("chunked_prefill", "step_tokens_max says how long a part is, and is unset")
    return search


def _batching(fields: PlanFields) -> dict[str, Any] | None:
    """Continuous batching, for more than one request at once."""
    plan = fields.plan
    fields.take("running_max")
    if (plan.running_max or 1) == 1:
        for name in ("gpu_memory_ratio", "block_tokens", "prefix_caching"):
            if name in set_fields(plan):
                fields.warn(name, "not told to ONNX Runtime: it is for a running_max above 1")
        return None
    fields.warn(
        "running_max",
        "ONNX Runtime GenAI runs several requests at once with models that were exported with "
        "paged attention (use_paged_attention of its model builder)",
    )
    fields.take("block_tokens", "gpu_memory_ratio", "prefix_caching")
    found: dict[str, Any] = {
        "block_size": plan.block_tokens or _BLOCK_TOKENS,
        "max_batch_size": plan.running_max,
        "gpu_utilization_factor": plan.instance_memory_ratio,
        "max_scheduled_tokens": plan.step_tokens_max,
        "prefix_caching": plan.prefix_caching,
    }
    return {name: value for name, value in found.items() if value is not None}
