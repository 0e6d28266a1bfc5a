"""FP8 and NVFP4 quantisation of keys and values, as rounding to the numbers they can store."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mileage.quant.formats import Scope, Values
from mileage.quant.ranges import Ranges

__all__ = ["FloatKind", "fake_fp8", "fake_nvfp4", "to_float"]

FloatKind = Literal["e4m3", "e5m2", "e2m1"]


class _Kind(NamedTuple):
    mantissa_bits: int
    exponent_min: int
    largest: float


_KINDS: Final[dict[FloatKind, _Kind]] = {
    "e4m3": _Kind(3, -6, 448.0),
    "e5m2": _Kind(2, -14, 57344.0),
    "e2m1": _Kind(1, 0, 6.0),
}
"""E4M3 without infinities and E5M2: Micikevicius et al. 2022, arXiv:2209.05433, table 1; E2M1: OCP
Microscaling Formats 1.0, section 5.3.3."""

_NVFP4_BLOCK = 16


def to_float(values: Values, kind: FloatKind) -> Values:
    """The nearest numbers of that kind, ties to even; beyond the largest, the largest."""
    mantissa_bits, exponent_min, largest = _KINDS[kind]
    # frexp: |x| = m 2^e with m in [0.5, 1), so the exponent of 1.xxx is e - 1.
    _, exponent = np.frexp(values)
    step = np.ldexp(np.float32(1.0), np.maximum(exponent - 1, exponent_min) - mantissa_bits)
    found: Values = np.clip(np.rint(values / step) * step, -largest, largest).astype(np.float32)
    return found


def fake_fp8(
    values: Values,
    *,
    kind: Literal["e4m3", "e5m2"],
    scope: Scope = "one",
    ranges: Ranges | None = None,
) -> Values:
    """What `values` (tokens, heads, head_dim) read back as after storage in FP8.

    The scale brings the greatest magnitude of the scope to the kind's largest number. Scope `one`
    has none: larger values saturate. A token's scale is stored in FP16; the others are fixed
    beforehand and need `ranges`.
    """
    if scope == "one":
        return to_float(values, kind)
    if scope == "token":
        largest = np.abs(values).max(axis=-1, keepdims=True)
        scale = _as_f32((largest / np.float32(_KINDS[kind].largest)).astype(np.float16))
    elif ranges is None:
        raise ValueError(f"scales of scope {scope} are fixed beforehand: they need ranges")
    else:
        low, high = ranges.of(scope)
        scale = _as_f32(np.maximum(np.abs(low), np.abs(high)) / np.float32(_KINDS[kind].largest))
    return _as_f32(to_float(_over(values, scale), kind) * scale)


def fake_nvfp4(values: Values, ranges: Ranges) -> Values:
    """What `values` (tokens, heads, head_dim) read back as after storage in NVFP4.

    Blocks of 16 channels of E2M1 with an E4M3 scale each, and one FP32 scale of the tensor that
    brings its greatest block scale to 448 (NVIDIA, "Pretraining LLMs with NVFP4", 2025,
    arXiv:2509.25149, section 2). The tensor's scale is fixed beforehand.
    """
    e2m1, e4m3 = _KINDS["e2m1"].largest, _KINDS["e4m3"].largest
    tensor = np.float32(ranges.largest / (e2m1 * e4m3)) or np.float32(1.0)
    blocks = values.reshape(*values.shape[:-1], -1, _NVFP4_BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = _as_f32(to_float(_as_f32(largest / e2m1 / tensor), "e4m3") * tensor)
    return _as_f32(to_float(_over(blocks, scale), "e2m1") * scale).reshape(values.shape)


def _over(values: Values, scale: Values) -> Values:
    """The quotient; where the scale is zero, so is what it scales."""
    return _as_f32(values / np.where(scale == 0.0, 1.0, scale))


def _as_f32(values: NDArray[np.floating[Any]]) -> Values:
    found: Values = values.astype(np.float32, copy=False)
    return found
