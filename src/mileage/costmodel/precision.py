"""Precisions: bytes per weight, and the rate at which a GPU multiplies in them."""

from __future__ import annotations

from typing import Final, Literal, get_args

from mileage.core.errors import ConfigError
from mileage.costmodel.gpu import Gpu

__all__ = [
    "KV_BYTES",
    "KvPrecision",
    "Precision",
    "compute_tflops",
    "precision",
    "weight_bytes",
]

Precision = Literal["bf16", "fp8", "int8", "int4", "fp4"]
"""Of weights. bf16 stands for FP16 too; int8 multiplies in INT8; int4 is for weights alone (AWQ,
GPTQ); fp4 multiplies in FP4 where the GPU can, else it is for weights alone (MXFP4, NVFP4)."""

KvPrecision = Literal["bf16", "fp8"]

KV_BYTES: Final[dict[KvPrecision, float]] = {"bf16": 2.0, "fp8": 1.0}
"""Bytes of one number in the KV cache."""

_BYTES: Final[dict[Precision, float]] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    # Groups of 128 with a scale and a zero point; blocks of 32 with a scale of one byte.
    "int4": 0.5 + 2.5 / 128,
    "fp4": 0.5 + 1.0 / 32,
}
_ALIASES: Final[dict[str, Precision]] = {
    "fp16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "bfloat16": "bf16",
    "fp8-block": "fp8",
    "w8a8": "int8",
    "gptq-int8": "int8",
    "awq": "int4",
    "gptq": "int4",
    "awq-int4": "int4",
    "gptq-int4": "int4",
    "int4-awq": "int4",
    "int4-gptq": "int4",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
}


def precision(name: str) -> Precision:
    """The precision of that name, or by what checkpoints call it. ConfigError for others."""
    wanted = name.lower()
    for known in get_args(Precision):
        if wanted == known:
            return known  # type: ignore[no-any-return]
    if wanted not in _ALIASES:
        raise ConfigError("precision", name, f"one of {', '.join(get_args(Precision))}")
    return _ALIASES[wanted]


def weight_bytes(kind: Precision) -> float:
    """Bytes of one weight, its part of the scales with it."""
    return _BYTES[kind]


def compute_tflops(gpu: Gpu, kind: Precision) -> float:
    """Peak of a multiplication with such weights; those that only save memory run in half."""
    native = {"fp8": gpu.fp8_tflops, "int8": gpu.int8_tops, "fp4": gpu.fp4_tflops}.get(kind)
    if kind == "fp4" and native is None:
        return gpu.half_tflops
    return gpu.half_tflops if native is None else native
