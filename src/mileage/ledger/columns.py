"""Columns: arrays of figures, one row per request, use or step, and sums over them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Ints", "sums", "whole_sums"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def sums(amounts: Floats, groups: Ints, count: int) -> Floats:
    """Of each of the groups 0 to `count` - 1."""
    found: Floats = np.bincount(groups, weights=amounts, minlength=count).astype(np.float64)
    return found


def whole_sums(amounts: Ints, groups: Ints, count: int) -> Ints:
    """The same of whole figures, exactly."""
    found: Ints = np.zeros(count, dtype=np.int64)
    np.add.at(found, groups, amounts)
    return found
