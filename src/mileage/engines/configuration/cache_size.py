"""CacheSize: room in the KV cache of one instance, computed from the card and the model's shape."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.memory import MemoryUse, memory_use
from mileage.costmodel.precision import KvPrecision, Precision
from mileage.engines.configuration.plan import EnginePlan, KvDType, WeightsName

__all__ = ["CacheSize", "cache_size"]

_MEMORY_RATIO: Final = 0.9
_RUNNING_MAX: Final = 256
_STEP_TOKENS_MAX: Final = 8192
_BLOCK_TOKENS: Final = 32
"""What is assumed where the plan does not say: TensorRT-LLM's block, and vLLM's limits on most
cards."""
_WEIGHTS: Final[dict[WeightsName, Precision]] = {
    "fp8": "fp8",
    "int8": "int8",
    "awq": "int4",
    "gptq": "int4",
    "fp4": "fp4",
}
_KV: Final[dict[KvDType, KvPrecision]] = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "fp8_e5m2": "fp8",
    "int8": "fp8",
    "int4": "fp8",
    "fp4": "fp8",
}
_KV_BITS: Final[dict[KvDType, float]] = {"int4": 4.5, "fp4": 4.5}
"""Of formats that are smaller than any that steps are timed with: 4 bits, and a scale of 8 bits
for 16 of them (NVFP4) or of 16 for 32."""


class CacheSize(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache of one instance. Bytes and ratios are of its fullest GPU."""

    blocks: int
    block_tokens: int
    tokens: int
    """In all blocks."""
    bytes: float
    weights_bytes: float
    gpu_bytes: float
    """Memory of the GPU, whole."""
    free_ratio: float
    """The cache over what is free once the weights are there and the largest step was computed: as
    the instance sees it that starts last."""
    static_ratios: tuple[float, ...]
    """Weights and cache together, for each instance: of what is free when it starts, after those
    before it."""
    contexts: int | None
    """Requests of the plan's `context_max_tokens` that fit at once; None without one."""


def cache_size(
    plan: EnginePlan, architecture: Architecture, gpu: Gpu, stored: Precision = "bf16"
) -> CacheSize:
    """Room beside the weights and the largest step, for one of the plan's instances.

    `stored`: how the weights are, where the plan does not say. Raises ConfigError where the model
    cannot be cut so, or does not fit, with the plan's field.
    """
    block = plan.block_tokens or _BLOCK_TOKENS
    ratio = (plan.gpu_memory_ratio or _MEMORY_RATIO) / plan.instances
    running = plan.running_max or _RUNNING_MAX
    step = plan.step_tokens_max or max(_STEP_TOKENS_MAX, running)
    try:
        deployment = Deployment(
            model=architecture,
            gpu=gpu,
            tensor_parallel=plan.tensor_parallel,
            pipeline_parallel=plan.pipeline_parallel,
            weights=stored if plan.weights is None else _WEIGHTS[plan.weights],
            kv="bf16" if plan.kv_dtype is None else _KV[plan.kv_dtype],
            kv_bits=None if plan.kv_dtype is None else _KV_BITS.get(plan.kv_dtype),
            gpu_memory_utilization_ratio=ratio,
        )
        blocks = deployment.kv_blocks(block, step, running)
    except ConfigError as error:
        raise error.named(_FIELDS.get(error.key, error.key)) from None
    tokens = blocks * block
    context = plan.context_max_tokens
    if context is not None and tokens < context:
        expected = f"up to {tokens}: the KV cache has room for no more beside the weights"
        raise ConfigError("context_max_tokens", context, expected)
    use = memory_use(deployment, step, running)
    return CacheSize(
        blocks=blocks,
        block_tokens=block,
        tokens=tokens,
        bytes=use.kv,
        weights_bytes=use.weights,
        gpu_bytes=float(gpu.memory_bytes),
        free_ratio=_share(use.kv, _free(use, gpu, plan.instances)),
        static_ratios=tuple(
            _share(use.kv + use.weights, gpu.memory_bytes - before * use.total)
            for before in range(plan.instances)
        ),
        contexts=None if context is None else tokens // context,
    )


_FIELDS: Final = {"gpu_memory_utilization_ratio": "gpu_memory_ratio"}


def _free(use: MemoryUse, gpu: Gpu, instances: int) -> float:
    others = (instances - 1) * use.total
    return gpu.memory_bytes - others - use.weights - use.activations - use.context


def _share(part: float, whole: float) -> float:
    """In thousandths, rounded down: a little less is what an engine can have."""
    return max(1, int(1000 * part / whole)) / 1000
