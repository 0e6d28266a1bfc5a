"""Integer quantisation of keys and values, as rounding of floats to the numbers it can store."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from mileage.quant.formats import Scope, Values
from mileage.quant.ranges import Ranges

__all__ = ["fake_int"]


def fake_int(
    values: Values,
    *,
    bits: int,
    scope: Scope,
    group: int | None = None,
    symmetric: bool = True,
    ranges: Ranges | None = None,
) -> Values:
    """What `values` (tokens, heads, head_dim) read back as after storage in `bits`.

    Symmetric: scale = max |x| / (2^(bits-1) - 1). Asymmetric: scale = (max - min) / (2^bits - 1),
    min as the zero point (KIVI, arXiv:2402.02750, eq. 1). Scales and minima found as tokens arrive
    are stored in FP16; those fixed beforehand need `ranges`. Of groups of tokens (scope channel)
    the last, unfinished one is given back as it is.
    """
    tokens, heads, width = values.shape
    if scope == "token":
        shared = values.reshape(tokens, heads, -1, group or width)
        low, high = shared.min(axis=-1, keepdims=True), shared.max(axis=-1, keepdims=True)
        return _rounded(shared, low, high, bits, symmetric, np.float16).reshape(values.shape)
    if scope == "channel" and group is not None:
        whole = tokens // group * group
        shared = values[:whole].reshape(-1, group, heads, width)
        if not whole:
            return values
        low, high = shared.min(axis=1, keepdims=True), shared.max(axis=1, keepdims=True)
        closed = _rounded(shared, low, high, bits, symmetric, np.float16)
        return np.concatenate((closed.reshape(whole, heads, width), values[whole:]))
    if ranges is None:
        raise ValueError(f"scales of scope {scope} are fixed beforehand: they need ranges")
    low, high = ranges.of(scope)
    return _rounded(values, low, high, bits, symmetric, np.float32)


def _rounded(
    values: Values, low: Values, high: Values, bits: int, symmetric: bool, stored: DTypeLike
) -> Values:
    """The nearest multiples of the scale that the bits hold; ties to the even one."""
    if symmetric:
        levels = 2 ** (bits - 1) - 1
        zero = np.zeros_like(low)
        span, lowest = np.maximum(np.abs(low), np.abs(high)), -levels
    else:
        levels = 2**bits - 1
        zero = low.astype(stored).astype(np.float32)
        span, lowest = high - low, 0
    scale = (span / np.float32(levels)).astype(stored).astype(np.float32)
    divisor = np.where(scale == 0.0, np.float32(1.0), scale)
    steps = np.clip(np.rint((values - zero) / divisor), lowest, levels)
    found: Values = (steps * scale + zero).astype(np.float32)
    return found
