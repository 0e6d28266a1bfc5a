"""Built-in architectures: shapes of published config.json files."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.architecture import Architecture
from mileage.costmodel.architecture_table_dense import DENSE_ARCHITECTURES
from mileage.costmodel.architecture_table_moe import MOE_ARCHITECTURES

__all__ = ["ARCHITECTURES"]

ARCHITECTURES: Final[tuple[Architecture, ...]] = (*DENSE_ARCHITECTURES, *MOE_ARCHITECTURES)
"""Every built-in architecture."""
