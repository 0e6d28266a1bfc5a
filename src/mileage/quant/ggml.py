"""llama.cpp's block formats q8_0, q5_0, q5_1, q4_0 and q4_1: to their very bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mileage.quant.formats import Values

__all__ = ["BLOCK", "GgmlType", "fake_ggml", "packed", "unpacked"]

GgmlType = Literal["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
Bytes = NDArray[np.uint8]

BLOCK: Final = 32
"""Values of a block; each block has its scale in FP16, types ending in 1 their minimum too."""

_BITS: Final[dict[GgmlType, int]] = {"q5_1": 5, "q5_0": 5, "q4_1": 4, "q4_0": 4}


def fake_ggml(values: Values, kind: GgmlType) -> Values:
    """What `values` read back as after storage; the last axis holds whole blocks."""
    return unpacked(packed(values, kind), kind).reshape(values.shape)


def packed(values: Values, kind: GgmlType) -> Bytes:
    """The blocks' bytes, (blocks, bytes of one), as ggml-quants.c makes them (quantize_row_*_ref).

    Raises ValueError where the last axis is not of whole blocks.
    """
    if values.shape[-1] % BLOCK:
        raise ValueError(f"the last axis has {values.shape[-1]} values, no multiple of {BLOCK}")
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, BLOCK)
    return _PACK[kind](blocks, kind)


def unpacked(blocks: Bytes, kind: GgmlType) -> Values:
    """The numbers that blocks of bytes stand for: (blocks, 32)."""
    scale = _half(blocks, 0)
    if kind == "q8_0":
        return scale * blocks[:, 2:].view(np.int8).astype(np.float32)
    minimum = _half(blocks, 2) if kind.endswith("1") else None
    rest = blocks[:, 2 if minimum is None else 4 :]
    low_bits = rest[:, -BLOCK // 2 :]
    steps = np.concatenate((low_bits & 0x0F, low_bits >> 4), axis=1)
    if _BITS[kind] == 5:
        fifth = np.unpackbits(rest[:, :4], axis=1, bitorder="little")
        steps = steps | (fifth << 4)
    if minimum is not None:
        return scale * steps.astype(np.float32) + minimum
    return scale * (steps.astype(np.float32) - np.float32(2 ** (_BITS[kind] - 1)))


def _half(blocks: Bytes, start: int) -> Values:
    halves = np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16)
    return halves.astype(np.float32)


def _bytes_of(halves: Values) -> Bytes:
    return halves.astype(np.float16).view(np.uint8)


def _inverse(scale: Values) -> Values:
    with np.errstate(divide="ignore"):
        return np.where(scale == 0.0, np.float32(0.0), np.float32(1.0) / scale)


def _pack_eight(blocks: Values, kind: GgmlType) -> Bytes:
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127.0)
    steps = _away_from_zero(blocks * _inverse(scale)).astype(np.int8)
    return np.concatenate((_bytes_of(scale), steps.view(np.uint8)), axis=1)


def _away_from_zero(values: Values) -> Values:
    """C's roundf: halves go away from zero."""
    magnitude = np.abs(values)
    whole = np.floor(magnitude)
    found: Values = np.sign(values) * (whole + np.floor(2.0 * (magnitude - whole)))
    return found


def _pack_scaled(blocks: Values, kind: GgmlType) -> Bytes:
    """Types ending in 0: the value of greatest magnitude becomes the lowest step."""
    half = 2 ** (_BITS[kind] - 1)
    at = np.abs(blocks).argmax(axis=1, keepdims=True)
    scale = np.take_along_axis(blocks, at, axis=1) / np.float32(-half)
    steps = np.trunc(blocks * _inverse(scale) + np.float32(half + 0.5))
    return np.concatenate((_bytes_of(scale), _pack_steps(steps, kind)), axis=1)


def _pack_from_minimum(blocks: Values, kind: GgmlType) -> Bytes:
    """Types ending in 1: the minimum becomes step 0, the maximum the highest."""
    minimum = blocks.min(axis=1, keepdims=True)
    levels = np.float32(2 ** _BITS[kind] - 1)
    scale = (blocks.max(axis=1, keepdims=True) - minimum) / levels
    steps = np.trunc((blocks - minimum) * _inverse(scale) + np.float32(0.5))
    return np.concatenate((_bytes_of(scale), _bytes_of(minimum), _pack_steps(steps, kind)), axis=1)


def _pack_steps(steps: Values, kind: GgmlType) -> Bytes:
    """Four bits each, value i beside value i + 16; a fifth bit of all 32 comes before them."""
    whole = np.clip(steps, 0, 2 ** _BITS[kind] - 1).astype(np.uint8)
    lower, upper = whole[:, : BLOCK // 2], whole[:, BLOCK // 2 :]
    nibbles: Bytes = (lower & np.uint8(0x0F)) | (upper << np.uint8(4))
    if _BITS[kind] == 4:
        return nibbles
    fifth: Bytes = np.packbits(whole >> 4, axis=1, bitorder="little")
    return np.concatenate((fifth, nibbles), axis=1)


_PACK: Final[dict[GgmlType, Callable[[Values, GgmlType], Bytes]]] = {
    "q8_0": _pack_eight,
    "q5_1": _pack_from_minimum,
    "q5_0": _pack_scaled,
    "q4_1": _pack_from_minimum,
    "q4_0": _pack_scaled,
}
