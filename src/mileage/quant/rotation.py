"""Hadamard rotation of heads: spreads a channel's outlier over all channels before rounding."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mileage.quant.formats import Values

__all__ = ["hadamard", "rotated"]


@lru_cache(maxsize=8)
def hadamard(size: int) -> Values:
    """Sylvester's matrix over sqrt(size): symmetric and its own inverse. ValueError for sizes that
    are no power of two."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"a Hadamard matrix of this kind has a power of two of rows, not {size}")
    matrix = np.ones((1, 1), dtype=np.float64)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    found: Values = (matrix / np.sqrt(size)).astype(np.float32)
    found.flags.writeable = False
    return found


def rotated(values: Values) -> Values:
    """Each head times the Hadamard matrix; twice is the identity.

    Queries and keys rotated alike have the scores they had; values rotated before storage are
    rotated back after attention (QuaRot, Ashkboos et al. 2024, arXiv:2404.00456, section 4).
    """
    found: Values = values @ hadamard(values.shape[-1])
    return found
