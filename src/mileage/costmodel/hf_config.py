"""Reads an Architecture from what a Hugging Face config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture

__all__ = ["from_hf_config"]

_DENSE: Final = frozenset(
    [
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "phi3",
        "granite",
        "olmo2",
        "smollm3",
        "starcoder2",
        "internlm2",
        "exaone",
        "cohere",
        "stablelm",
    ]
)
_UNGATED: Final = frozenset({"starcoder2"})
_BIASED: Final = frozenset({"qwen2", "gpt_oss", "starcoder2"})
_MOE: Final = frozenset(
    [
        "mixtral",
        "qwen2_moe",
        "qwen3_moe",
        "gpt_oss",
        "deepseek_v2",
        "deepseek_v3",
        "kimi_k2",
        "glm4_moe",
        "minimax_m2",
        "minimax",
        "olmoe",
    ]
)
_TIED: Final = frozenset({"gemma", "cohere"})
"""Families whose embeddings are tied where the file does not say."""


def from_hf_config(config: Mapping[str, Any], name: str = "config.json") -> Architecture:
    """The architecture that a config.json, as a mapping, describes.

    Takes Llama-like families, Mixtral, Qwen, gpt-oss, DeepSeek and others with experts. ConfigError
    names the key where one is missing or wrong, and `model_type` for a family that is not known.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = inner
    kind = config.get("model_type")
    if kind not in _DENSE | _MOE:
        known = ", ".join(sorted(_DENSE | _MOE))
        raise ConfigError("model_type", kind, f"one of {known}")
    hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
    layers = _count(config, "num_hidden_layers")
    shape = _experts(config, str(kind)) if kind in _MOE else {}
    latent = _latent(config)
    head_dim = _count(config, "head_dim", hidden // heads)
    if latent:
        head_dim = latent["nope_dim"] + latent["rope_dim"]
    bias = bool(config.get("attention_bias", kind in _BIASED))
    return Architecture(
        name=str(config.get("_name_or_path") or name),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if latent else _count(config, "num_key_value_heads", heads),
        head_dim=head_dim,
        intermediate=_count(config, "intermediate_size"),
        vocab=_count(config, "vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", kind in _TIED)),
        gated=kind not in _UNGATED,
        attention_bias=bias or kind == "qwen2",
        mtp_layers=_count(config, "num_nextn_predict_layers", 0),
        **shape,
        **latent,
        **_windows(config, layers),
    )


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number; null is as good as absent."""
    value = config.get(key)
    if value is None:
        if default is None:
            raise ConfigError(key, None, "a whole number: the key is missing")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(key, value, "a whole number")
    return value


def _experts(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    key = next((each for each in names if config.get(each) is not None), None)
    if key is None:
        raise ConfigError("num_experts", None, f"one of {', '.join(names)}")
    wide = _count(config, "moe_intermediate_size", _count(config, "intermediate_size"))
    shared = _count(config, "n_shared_experts", 0)
    shared_wide = _count(config, "shared_expert_intermediate_size", 0)
    layers = _count(config, "num_hidden_layers")
    dense = _count(config, "first_k_dense_replace", 0)
    only = config.get("mlp_only_layers")
    if isinstance(only, list):
        dense = len(only)
    step = _count(config, "decoder_sparse_step", 1)
    if step > 1:
        dense = layers - layers // step
    return {
        "experts": _count(config, key),
        "experts_per_token": _count(config, "num_experts_per_tok"),
        "expert_intermediate": wide,
        "shared_experts": 1 if kind == "qwen2_moe" and shared_wide else shared,
        "shared_intermediate": shared_wide if kind == "qwen2_moe" else 0,
        "dense_layers": dense,
    }


def _latent(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of multi-head latent attention; empty without."""
    if not config.get("kv_lora_rank"):
        return {}
    return {
        "kv_lora_rank": _count(config, "kv_lora_rank"),
        "q_lora_rank": _count(config, "q_lora_rank", 0),
        "rope_dim": _count(config, "qk_rope_head_dim"),
        "nope_dim": _count(config, "qk_nope_head_dim"),
        "value_dim": _count(config, "v_head_dim"),
    }


def _windows(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Layers that attend to a window only."""
    window = _count(config, "sliding_window", 0)
    if not window or config.get("use_sliding_window") is False:
        return {}
    types = config.get("layer_types")
    count = types.count("sliding_attention") if isinstance(types, list) else layers
    return {"window_tokens": window, "window_layers": count} if count else {}
