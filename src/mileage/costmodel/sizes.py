"""Sizes: the work of one layer and one step on one GPU, as plain numbers."""

from __future__ import annotations

from typing import NamedTuple

from mileage.costmodel.layout import Layout
from mileage.costmodel.precision import weight_bytes

__all__ = ["Sizes", "sizes"]

_ELEMENTWISE_PASSES = 10.0
"""Times that the hidden state of a token is read or written besides GEMMs, in a layer."""
_PERMUTE_PASSES = 4.0
"""A token's hidden state is read and written for each of its experts, and so is their output."""
_BETWEEN_PASSES = 5.0
"""Gate and up projection are written and read, and their product too."""
_DISPATCH_BYTES = 1.0
"""Hidden states go to the experts in FP8, and come back in half precision."""
_COMBINE_BYTES = 2.0


class Sizes(NamedTuple):
    """Of one GPU. Fields may be arrays as well, so that many layouts are computed at once."""

    layers: float
    dense_layers: float
    moe_layers: float
    full_layers: float
    window_layers: float
    window_tokens: float
    attention_ranks: float
    """Data-parallel ranks times `batches`: each takes its share of the requests, a whole request
    each."""
    batches: float
    """That the requests of a rank are split over, one in each pipeline stage at a time."""
    stages: float
    tensor_ranks: float
    """GPUs that all-reduce a layer's hidden states."""
    expert_ranks: float
    """GPUs that send tokens to each other's experts; 1: none."""
    expert_shards: float
    """GPUs that an expert is cut among."""
    attention_weights: float
    """Weights of a layer's projections, all four."""
    attention_bytes: float
    dense_weights: float
    dense_bytes: float
    shared_weights: float
    shared_bytes: float
    experts: float
    """Of the whole model."""
    experts_per_token: float
    local_experts: float
    expert_weights: float
    """Of one expert's part on one GPU."""
    expert_bytes: float
    permute_bytes: float
    """Of one token in a layer with experts: what is gathered for its experts, passed between their
    two GEMMs, and summed up again."""
    router_weights: float
    head_weights: float
    hidden: float
    reduce_bytes: float
    """Of one token's hidden state."""
    exchange_bytes: float
    """Of one token that is sent to its experts and back."""
    elementwise_bytes: float
    pair_flops: float
    """Of one pair of a query and a key of a prompt, in a layer."""
    kv_flops: float
    """Of one token of context that a decoding request reads, in a layer."""
    kv_bytes: float


def sizes(layout: Layout, *, batches: int | None = None) -> Sizes:
    """The numbers of that layout. `batches`: as many as are on their way through the pipeline at
    a time; None: one in each stage. 1 is a batch that is alone, and passes all stages in turn."""
    if batches is None:
        batches = layout.pipeline_parallel
    model, tensor = layout.model, layout.tensor_parallel
    attention_bytes = weight_bytes(layout.attention_weights)
    each = weight_bytes(layout.weights)
    projections = _projection_weights(layout)
    shards = layout.ranks / layout.expert_parallel
    dense = model.dense_parameters / tensor if model.dense_ffn_layers else 0.0
    shared = model.shared_parameters / tensor
    expert = model.expert_parameters / shards if model.experts else 0.0
    spread = layout.data_parallel > 1 and model.experts > 0
    hidden = float(model.hidden)
    pair_width = model.nope_dim + model.rope_dim + model.value_dim
    latent = 2 * model.kv_lora_rank + model.rope_dim
    heads = model.heads / tensor
    return Sizes(
        layers=model.layers,
        dense_layers=model.dense_ffn_layers,
        moe_layers=model.moe_layers,
        full_layers=model.full_layers,
        window_layers=model.window_layers,
        window_tokens=model.window_tokens,
        attention_ranks=layout.data_parallel * batches,
        batches=batches,
        stages=layout.pipeline_parallel,
        tensor_ranks=tensor,
        expert_ranks=layout.ranks if spread else 1,
        expert_shards=shards,
        attention_weights=projections,
        attention_bytes=projections * attention_bytes,
        dense_weights=dense,
        dense_bytes=dense * each,
        shared_weights=shared,
        shared_bytes=shared * each,
        experts=max(model.experts, 1),
        experts_per_token=model.experts_per_token,
        local_experts=model.experts / layout.expert_parallel,
        expert_weights=expert,
        expert_bytes=expert * each,
        permute_bytes=2.0
        * model.experts_per_token
        * (_PERMUTE_PASSES * hidden + _BETWEEN_PASSES * model.expert_intermediate / shards),
        router_weights=model.router_parameters,
        head_weights=model.vocab * model.hidden / tensor,
        hidden=hidden,
        reduce_bytes=hidden * 2,
        exchange_bytes=hidden * model.experts_per_token * (_DISPATCH_BYTES + _COMBINE_BYTES),
        elementwise_bytes=hidden * 2 * _ELEMENTWISE_PASSES,
        pair_flops=2 * heads * (pair_width if model.mla else 2 * model.head_dim),
        kv_flops=2 * heads * (latent if model.mla else 2 * model.head_dim),
        kv_bytes=model.kv_elements * layout.kv_number_bytes * layout.kv_rank_share,
    )


def _projection_weights(layout: Layout) -> float:
    """Weights of a layer's attention on one GPU."""
    model, tensor = layout.model, layout.tensor_parallel
    if model.mla:
        down = model.hidden * (model.kv_lora_rank + model.rope_dim + model.q_lora_rank)
        up = model.query_parameters + model.kv_parameters - down
        return down + (up + model.output_parameters) / tensor
    split = (model.query_parameters + model.output_parameters) / tensor
    return split + model.kv_parameters * layout.kv_rank_share
