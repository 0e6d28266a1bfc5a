"""Reads an Architecture from the metadata of a GGUF file, once something has read those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture

__all__ = ["from_gguf_metadata"]

_BIASED = frozenset({"qwen2", "qwen2moe", "gpt-oss"})
_KNOWN = frozenset(
    [
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "qwen2moe",
        "qwen3moe",
        "gpt-oss",
        "deepseek2",
        "gemma",
        "phi3",
        "granite",
        "smollm3",
    ]
)


def from_gguf_metadata(metadata: Mapping[str, Any]) -> Architecture:
    """The architecture that GGUF keys describe (`general.architecture`, `llama.block_count`, ...).

    `metadata` maps keys to values; of the vocabulary its length is enough, as
    `ARCHITECTURE.vocab_size` or the list `tokenizer.ggml.tokens`. That a file has no output matrix,
    so that embeddings are tied, only its tensors tell: `tied_embeddings`, no key of GGUF's, is for
    who has seen that. Keys: GGUF's specification
    (ggml-org/ggml, docs/gguf.md). ConfigError names the key that is missing or wrong.
    """
    kind = metadata.get("general.architecture")
    if kind not in _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        raise ConfigError("general.architecture", kind, f"one of {known}")

    def count(key: str, default: int | None = None) -> int:
        value = metadata.get(f"{kind}.{key}", default)
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = max(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{kind}.{key}", value, "a whole number")
        return value

    hidden, heads = count("embedding_length"), count("attention.head_count")
    latent = count("attention.kv_lora_rank", 0)
    rope = count("rope.dimension_count", 0) if latent else 0
    key_length = count("attention.key_length_mla", 0) or count(
        "attention.key_length", hidden // heads
    )
    value_length = count("attention.value_length_mla", 0) or count(
        "attention.value_length", key_length
    )
    experts = count("expert_count", 0)
    window = count("attention.sliding_window", 0)
    layers = count("block_count")
    shared = count("expert_shared_count", 0)
    shared_wide = count("expert_shared_feed_forward_length", 0)
    return Architecture(
        name=str(metadata.get("general.name") or kind),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if latent else count("attention.head_count_kv", heads),
        head_dim=key_length,
        intermediate=count("feed_forward_length", count("expert_feed_forward_length", 0)),
        vocab=_vocabulary(metadata, str(kind)),
        # A file without an output matrix uses the embedding; only the tensors tell that.
        tied_embeddings=bool(metadata.get("tied_embeddings", False)),
        attention_bias=kind in _BIASED,
        experts=experts,
        experts_per_token=count("expert_used_count") if experts else 0,
        expert_intermediate=count("expert_feed_forward_length", count("feed_forward_length", 0))
        if experts
        else 0,
        shared_experts=1 if shared_wide and not shared else shared,
        shared_intermediate=shared_wide,
        dense_layers=count("leading_dense_block_count", 0),
        kv_lora_rank=latent,
        q_lora_rank=count("attention.q_lora_rank", 0) if latent else 0,
        rope_dim=rope,
        nope_dim=key_length - rope if latent else 0,
        value_dim=value_length if latent else 0,
        window_tokens=window,
        window_layers=layers // 2 if window and kind == "gpt-oss" else layers if window else 0,
    )


def _vocabulary(metadata: Mapping[str, Any], kind: str) -> int:
    size = metadata.get(f"{kind}.vocab_size")
    if size is None:
        tokens = metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, Sequence):
            size = len(tokens)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError(f"{kind}.vocab_size", size, "the number of tokens")
    return size
