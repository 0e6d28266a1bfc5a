"""Architectures from config.json and GGUF metadata equal the built-in ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.catalogue import architecture
from mileage.costmodel.gguf_metadata import from_gguf_metadata
from mileage.costmodel.hf_config import from_hf_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "use_sliding_window": False,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "sliding_window": 128,
    "vocab_size": 201088,
}
QWEN25: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "vocab_size": 32000,
}


def shape(model: Architecture) -> Architecture:
    """Without what the file does not hold."""
    return msgspec.structs.replace(model, name="", aliases=(), parameters_b=None, active_b=None)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        pytest.param(LLAMA, "llama-3.1-8b", id="Llama"),
        pytest.param(QWEN25, "qwen2.5-0.5b", id="Qwen2.5, whose window is switched off"),
        pytest.param(QWEN3_MOE, "qwen3-30b-a3b", id="Qwen3 with experts"),
        pytest.param(DEEPSEEK_V3, "deepseek-v3", id="DeepSeek-V3"),
        pytest.param(GPT_OSS, "gpt-oss-20b", id="gpt-oss, every other layer with a window"),
        pytest.param(MIXTRAL, "mixtral-8x7b", id="Mixtral"),
    ],
)
def test_a_config_gives_the_built_in_shape(config: dict[str, Any], name: str) -> None:
    assert shape(from_hf_config(config)) == shape(architecture(name))


def test_a_config_of_a_multimodal_model_has_its_text_part_read() -> None:
    assert from_hf_config({"model_type": "x", "text_config": LLAMA}).layers == 32


@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param({"model_type": "mamba"}, "model_type", id="a family that is not known"),
        pytest.param({"hidden_size": None}, "hidden_size", id="missing"),
        pytest.param({"num_hidden_layers": "32"}, "num_hidden_layers", id="no number"),
        pytest.param({"num_key_value_heads": 64}, "kv_heads", id="more KV heads than heads"),
        pytest.param({"vocab_size": 0}, "vocab", id="no vocabulary"),
    ],
)
def test_a_bad_config_is_told_by_its_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        from_hf_config({**LLAMA, **change})


def test_experts_that_are_not_told_are_asked_for() -> None:
    config = {key: value for key, value in QWEN3_MOE.items() if key != "num_experts"}
    with pytest.raises(ConfigError, match="num_experts"):
        from_hf_config(config)


GGUF: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "SmolLM2 135M",
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.vocab_size": 49152,
    "tied_embeddings": True,
}


def test_gguf_metadata_give_the_built_in_shape() -> None:
    assert shape(from_gguf_metadata(GGUF)) == shape(architecture("smollm2-135m"))


def test_gguf_metadata_of_deepseek_give_the_built_in_shape() -> None:
    values = {
        "block_count": 27,
        "embedding_length": 2048,
        "feed_forward_length": 10944,
        "attention.head_count": 16,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 192,
        "attention.value_length": 128,
        "rope.dimension_count": 64,
        "expert_count": 64,
        "expert_used_count": 6,
        "expert_shared_count": 2,
        "expert_feed_forward_length": 1408,
        "leading_dense_block_count": 1,
        "vocab_size": 102400,
    }
    metadata = {"general.architecture": "deepseek2"}
    metadata |= {f"deepseek2.{key}": value for key, value in values.items()}  # type: ignore[misc]
    assert shape(from_gguf_metadata(metadata)) == shape(architecture("deepseek-v2-lite"))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param({"general.architecture": "bert"}, "general.architecture", id="no decoder"),
        pytest.param({"llama.block_count": None}, "llama.block_count", id="missing"),
        pytest.param({"llama.vocab_size": None}, "llama.vocab_size", id="no vocabulary"),
    ],
)
def test_bad_metadata_are_told_by_their_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        from_gguf_metadata({**GGUF, **change})


def test_a_vocabulary_may_be_a_list() -> None:
    metadata = {**GGUF, "llama.vocab_size": None, "tokenizer.ggml.tokens": ["a", "b", "c"]}
    assert from_gguf_metadata(metadata).vocab == 3
