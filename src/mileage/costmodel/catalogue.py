"""The catalogue: GPUs and model architectures by name, in any usual spelling."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.architecture import Architecture
from mileage.costmodel.architecture_table import ARCHITECTURES
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.gpu_table_cards import CARD_GPUS
from mileage.costmodel.gpu_table_other import OTHER_GPUS
from mileage.costmodel.gpu_table_sxm import SXM_GPUS
from mileage.costmodel.names import NameIndex

__all__ = ["GPUS", "architecture", "gpu"]

GPUS: Final = (*SXM_GPUS, *CARD_GPUS, *OTHER_GPUS)
"""Every known GPU."""

_GPUS = NameIndex("gpu", ((each, (each.name, *each.aliases)) for each in GPUS))
_ARCHITECTURES = NameIndex("model", ((each, (each.name, *each.aliases)) for each in ARCHITECTURES))


def gpu(name: str) -> Gpu:
    """The GPU of that name: `h100`, `H100-SXM5-80GB`, `a100-80gb`.

    ConfigError with the nearest names where there is none.
    """
    return _GPUS.find(name)


def architecture(name: str) -> Architecture:
    """The built-in architecture of that name: a hub id, or its last part, or a short name.

    ConfigError with the nearest names where there is none.
    """
    return _ARCHITECTURES.find(name)
