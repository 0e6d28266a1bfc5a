"""What keys or values read back as after storage in a format."""

from __future__ import annotations

import numpy as np

from mileage.quant.floats import fake_fp8, fake_nvfp4
from mileage.quant.formats import KvFormat, Values
from mileage.quant.ggml import fake_ggml
from mileage.quant.integers import fake_int
from mileage.quant.ranges import Ranges
from mileage.quant.rotation import rotated

__all__ = ["quantised"]


def quantised(values: Values, kv_format: KvFormat, ranges: Ranges | None = None) -> Values:
    """`values` (tokens, heads, head_dim) as the cache gives them back.

    `ranges` of calibration text are needed where the format's scales are fixed beforehand
    (`KvFormat.static`); ValueError without.
    """
    if kv_format.rotated:
        return rotated(_stored(rotated(values), kv_format, ranges))
    return _stored(values, kv_format, ranges)


def _stored(values: Values, kv_format: KvFormat, ranges: Ranges | None) -> Values:
    scheme = kv_format.scheme
    if scheme == "f16":
        return values.astype(np.float16).astype(np.float32)
    if scheme == "int":
        return fake_int(
            values,
            bits=int(kv_format.bits),
            scope=kv_format.scope,
            group=kv_format.group,
            symmetric=kv_format.symmetric,
            ranges=ranges,
        )
    if scheme == "e4m3" or scheme == "e5m2":
        return fake_fp8(values, kind=scheme, scope=kv_format.scope, ranges=ranges)
    if scheme == "nvfp4":
        if ranges is None:
            raise ValueError("nvfp4's scale of the tensor is fixed beforehand: it needs ranges")
        return fake_nvfp4(values, ranges)
    return fake_ggml(values, scheme)
