"""What vLLM's server takes for limits that nobody sets: they follow from the GPU's memory."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.gpu import Gpu

__all__ = ["default_limits"]

_GIB: Final = 1 << 30


def default_limits(card: Gpu) -> tuple[int, int]:
    """Requests at once and tokens of a step, as vLLM's server chooses by the GPU.

    vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults (0.11 and later).
    """
    if card.memory_bytes >= 160 * _GIB:
        return 1024, 16384
    if card.memory_bytes >= 70 * _GIB and not card.name.startswith("A100"):
        return 1024, 8192
    return 256, 2048
