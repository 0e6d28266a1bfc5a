"""Architecture: the shape of a decoder-only language model, as far as its cost depends on it."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError

__all__ = ["Architecture"]


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """A transformer decoder. Raises ConfigError for a shape that cannot be.

    Feed-forward blocks are gated (three matrices) unless `gated` says otherwise. The parameter
    counts are of weight matrices, embeddings and biases; norms and other vectors are left out: they
    are less than a tenth of a per mille.
    """

    name: str
    """As the hub has it."""
    aliases: tuple[str, ...] = ()
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Of the dense feed-forward blocks."""
    vocab: int
    tied_embeddings: bool = False
    gated: bool = True
    attention_bias: bool = False
    """Biases of the query, key and value projections."""
    experts: int = 0
    """Routed experts of each mixture layer; 0: the model is dense."""
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_experts: int = 0
    shared_intermediate: int = 0
    """Of all shared experts of a layer together; where it is 0, `expert_intermediate` of each."""
    dense_layers: int = 0
    """Of a model with experts: layers with a dense feed-forward block instead."""
    kv_lora_rank: int = 0
    """Of multi-head latent attention (MLA); 0: plain grouped-query attention."""
    q_lora_rank: int = 0
    """0: queries are projected in one step."""
    rope_dim: int = 0
    """MLA: the part of each key that carries the position, shared by all heads."""
    nope_dim: int = 0
    """MLA: the rest of a head's query and key."""
    value_dim: int = 0
    """MLA: of a head's value."""
    window_tokens: int = 0
    """Of layers with sliding-window attention; 0: there are none."""
    window_layers: int = 0
    mtp_layers: int = 0
    """Layers that predict further tokens; they are run only with speculative decoding."""
    parameters_b: float | None = None
    """Published count, in 1e9, without the layers that predict further tokens."""
    active_b: float | None = None
    """Published count of parameters that one token uses, in 1e9."""

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"):
            require_at_least(key, getattr(self, key), 1)
        require_range("kv_heads", self.kv_heads, 1, self.heads)
        if self.experts:
            require_range("experts_per_token", self.experts_per_token, 1, self.experts)
            require_at_least("expert_intermediate", self.expert_intermediate, 1)
            require_range("dense_layers", self.dense_layers, 0, self.layers)
        if self.dense_ffn_layers:
            require_at_least("intermediate", self.intermediate, 1)
        if self.kv_lora_rank and not (self.rope_dim and self.nope_dim and self.value_dim):
            raise ConfigError(
                "kv_lora_rank", self.kv_lora_rank, "rope_dim, nope_dim, value_dim too"
            )
        if self.window_layers:
            require_range("window_layers", self.window_layers, 0, self.layers)
            require_at_least("window_tokens", self.window_tokens, 1)

    @property
    def mla(self) -> bool:
        """Keys and values are kept as one latent vector per token and layer."""
        return self.kv_lora_rank > 0

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def dense_ffn_layers(self) -> int:
        """Layers with a dense feed-forward block."""
        return self.layers - self.moe_layers

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.layers - self.window_layers

    @property
    def kv_elements(self) -> int:
        """Numbers that the KV cache holds per token and layer, all heads together."""
        if self.mla:
            return self.kv_lora_rank + self.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def query_parameters(self) -> int:
        """Weights of the query projections of a layer."""
        if not self.mla:
            return self.hidden * self.heads * self.head_dim
        wide = self.heads * (self.nope_dim + self.rope_dim)
        if not self.q_lora_rank:
            return self.hidden * wide
        return self.q_lora_rank * (self.hidden + wide)

    @property
    def kv_parameters(self) -> int:
        """Weights of the key and value projections of a layer."""
        if not self.mla:
            return self.hidden * 2 * self.kv_heads * self.head_dim
        up = self.kv_lora_rank * self.heads * (self.nope_dim + self.value_dim)
        return self.hidden * (self.kv_lora_rank + self.rope_dim) + up

    @property
    def output_parameters(self) -> int:
        """Weights of the projection behind the attention of a layer."""
        return self.heads * (self.value_dim if self.mla else self.head_dim) * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Weights and biases of the attention of one layer."""
        bias = (self.heads + 2 * self.kv_heads) * self.head_dim if self.attention_bias else 0
        return self.query_parameters + self.kv_parameters + self.output_parameters + bias

    @property
    def dense_parameters(self) -> int:
        """Weights of a dense feed-forward block."""
        return (3 if self.gated else 2) * self.hidden * self.intermediate

    @property
    def expert_parameters(self) -> int:
        """Weights of one routed expert."""
        return (3 if self.gated else 2) * self.hidden * self.expert_intermediate

    @property
    def shared_parameters(self) -> int:
        """Weights of all shared experts of a layer."""
        wide = self.shared_intermediate or self.shared_experts * self.expert_intermediate
        return (3 if self.gated else 2) * self.hidden * wide if self.shared_experts else 0

    @property
    def router_parameters(self) -> int:
        """Weights of the gate that chooses a token's experts."""
        return self.hidden * self.experts

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding and the LM head, once where they are the same."""
        return self.vocab * self.hidden * (1 if self.tied_embeddings else 2)

    @property
    def parameters(self) -> int:
        """All weights, without the layers that predict further tokens."""
        moe = self.experts * self.expert_parameters
        return self._count(moe) + self.embedding_parameters

    @property
    def active_parameters(self) -> int:
        """Weights that one token uses, with the embedding."""
        return self._count(self.experts_per_token * self.expert_parameters) + (
            self.embedding_parameters
        )

    def _count(self, routed: int) -> int:
        mixture = self.moe_layers * (routed + self.shared_parameters + self.router_parameters)
        dense = self.dense_ffn_layers * self.dense_parameters
        return self.layers * self.attention_parameters + dense + mixture
