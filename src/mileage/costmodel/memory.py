"""Memory of a replica: weights, what a step needs at its peak, and the KV blocks that are left."""

from __future__ import annotations

import math

import msgspec

from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import GPUS
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.layout import Layout
from mileage.costmodel.sizes import sizes

__all__ = ["MemoryUse", "kv_blocks", "memory_use", "weights_bytes"]

_GB = 1e9
_CONTEXT_BYTES = 560 << 20
"""CUDA context, cuBLAS and attention workspaces: what nvidia-smi shows of an empty engine."""
_COLLECTIVE_BYTES = 600 << 20
"""NCCL's buffers and those of the engine's own all-reduce, where there are several GPUs."""
_HALF_BYTES = 2
_LOGIT_BYTES = 10
"""Of each logit of a step: half precision, and the sampler's two copies in FP32."""
_HIDDEN_COPIES = 6
"""Hidden states that are held at once: residual, normed, projected, and their workspaces."""
_TENSOR_PARALLEL_MAX = 64


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes of one GPU, the fullest of the replica."""

    total: float
    """That the engine may use: the GPU's, times its utilisation."""
    weights: float
    activations: float
    """At the peak of the largest step."""
    context: float
    """CUDA context, libraries and collectives."""
    kv: float
    """What is left for the KV cache; negative: so much is missing."""


def weights_bytes(layout: Layout) -> float:
    """Bytes of weights on the GPU of a replica that holds the most of them."""
    model, size = layout.model, sizes(layout)
    layers = math.ceil(model.layers / layout.pipeline_parallel)
    mixture = min(layers, model.moe_layers)
    dense = min(layers, model.dense_ffn_layers) if not mixture else layers - mixture
    expert_layer = size.local_experts * size.expert_bytes + size.shared_bytes
    # The gate is kept in half precision, on every GPU.
    expert_layer += size.router_weights * _HALF_BYTES
    copies = 2 if not model.tied_embeddings and layout.pipeline_parallel == 1 else 1
    embeddings = copies * size.head_weights * _HALF_BYTES
    return (
        layers * size.attention_bytes
        + mixture * expert_layer
        + dense * size.dense_bytes
        + (embeddings)
    )


def memory_use(layout: Layout, step_tokens_max: int, requests_max: int) -> MemoryUse:
    """What each thing takes of the fullest GPU; the limits are those of a data-parallel rank."""
    model, tensor = layout.model, layout.tensor_parallel
    wide = 3 * model.intermediate / tensor if model.dense_ffn_layers else 0.0
    if model.experts:
        # Fused kernels hold the inputs or outputs of all chosen experts at once.
        cut = model.expert_intermediate / tensor
        wide = max(wide, model.experts_per_token * (max(2 * cut, model.hidden) + cut))
    heads = (model.heads + 2 * model.kv_heads) / tensor * model.head_dim
    per_token = _HIDDEN_COPIES * model.hidden + max(wide, 2 * heads)
    # The largest step is computed once before the cache is laid out; logits are of its last rows.
    activations = (
        step_tokens_max * per_token * _HALF_BYTES + requests_max * model.vocab * _LOGIT_BYTES
    )
    context = _CONTEXT_BYTES + (_COLLECTIVE_BYTES if layout.gpus > 1 else 0)
    layers = math.ceil(model.window_layers / layout.pipeline_parallel)
    windowed = layers * (model.window_tokens * requests_max + step_tokens_max)
    total = layout.gpu.memory_bytes * layout.gpu_memory_utilization_ratio
    weights = weights_bytes(layout)
    windows = windowed * _layer_bytes(layout)
    return MemoryUse(
        total=total,
        weights=weights,
        activations=activations,
        context=context,
        kv=total - weights - activations - context - windows,
    )


def kv_blocks(layout: Layout, block_tokens: int, step_tokens_max: int, requests_max: int) -> int:
    """Blocks of the KV cache of the whole replica; ConfigError where the model does not fit."""
    require_at_least("block_tokens", block_tokens, 1)
    require_at_least("step_tokens_max", step_tokens_max, 1)
    require_at_least("requests_max", requests_max, 1)
    missing = _missing(layout, block_tokens, step_tokens_max, requests_max)
    if missing > 0.0:
        raise _does_not_fit(layout, block_tokens, step_tokens_max, requests_max)
    use = memory_use(layout, step_tokens_max, requests_max)
    return int(use.kv // _block_bytes(layout, block_tokens)) * layout.data_parallel


def _block_bytes(layout: Layout, block_tokens: int) -> float:
    """Of a block in the layers that a GPU has."""
    layers = math.ceil(layout.model.full_layers / layout.pipeline_parallel)
    return block_tokens * layers * _layer_bytes(layout)


def _missing(layout: Layout, block_tokens: int, step_tokens_max: int, requests_max: int) -> float:
    """Bytes that a GPU lacks for one block of the KV cache; none or negative: it has them."""
    kv = memory_use(layout, step_tokens_max, requests_max).kv
    return _block_bytes(layout, block_tokens) - kv


def _layer_bytes(layout: Layout) -> float:
    """Of one token in one layer, on one GPU."""
    return layout.model.kv_elements * layout.kv_number_bytes * layout.kv_rank_share


def _does_not_fit(
    layout: Layout, block_tokens: int, step_tokens_max: int, requests_max: int
) -> ConfigError:
    limits = (block_tokens, step_tokens_max, requests_max)
    missing = _missing(layout, *limits)
    tensor = _smallest_tensor_parallel(layout, *limits)
    gpu = _smallest_gpu(layout, *limits)
    ways = [f"tensor_parallel={tensor}"] if tensor else []
    ways += [gpu.name] if gpu else []
    hint = f"{' or '.join(ways)} would do" if ways else "no GPU of the catalogue would do"
    usable = layout.gpu.memory_bytes * layout.gpu_memory_utilization_ratio
    return ConfigError(
        "tensor_parallel",
        layout.tensor_parallel,
        f"GPUs with {missing / _GB:.1f} GB more each for {layout.model.name} in {layout.weights} "
        f"({(usable + missing) / _GB:.0f} GB usable, and not {usable / _GB:.0f} GB of "
        f"{layout.gpu.name}): {hint}",
    )


def _smallest_tensor_parallel(
    layout: Layout, block_tokens: int, step_tokens_max: int, requests_max: int
) -> int | None:
    """The least power of two of GPUs that hold the model."""
    tensor = layout.tensor_parallel
    while tensor < _TENSOR_PARALLEL_MAX:
        tensor *= 2
        if layout.model.heads % tensor:
            return None
        wider = msgspec.structs.replace(layout, tensor_parallel=tensor)
        if _missing(wider, block_tokens, step_tokens_max, requests_max) <= 0.0:
            return tensor
    return None


def _smallest_gpu(
    layout: Layout, block_tokens: int, step_tokens_max: int, requests_max: int
) -> Gpu | None:
    """The one with the least memory that holds the model as it is laid out."""
    for gpu in sorted(GPUS, key=lambda each: each.memory_bytes):
        other = msgspec.structs.replace(layout, gpu=gpu, interconnect=None)
        if _missing(other, block_tokens, step_tokens_max, requests_max) <= 0.0:
            return gpu
    return None
