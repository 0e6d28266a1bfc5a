"""Tensors of a GGUF file: how many bytes a type and a shape take."""

from __future__ import annotations

import math
from typing import Final

import msgspec

__all__ = ["Tensor", "tensor_bytes"]

_BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}
"""Tensor type -> (values per block, bytes per block); of a type not here a row takes one byte."""


class Tensor(msgspec.Struct, frozen=True):
    """One entry of the table of tensors; `shape` begins with the length of a row."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    """From the start of the data."""


def tensor_bytes(tensor: Tensor) -> int:
    """Size of the tensor's data; a lower bound where its type is not known here."""
    per_block, block_bytes = _BLOCKS.get(tensor.type, (1 << 62, 1))
    return -(-tensor.shape[0] // per_block) * block_bytes * math.prod(tensor.shape[1:])
