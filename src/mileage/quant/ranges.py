"""The least and the greatest value of each channel: what scales fixed beforehand are made of."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from mileage.quant.formats import Scope, Values

__all__ = ["Ranges", "ranges_of"]


class Ranges(msgspec.Struct, frozen=True, kw_only=True):
    """Of one layer's keys or values, over calibration text: each (heads, head_dim)."""

    low: Values
    high: Values

    def of(self, scope: Scope) -> tuple[Values, Values]:
        """The extremes that share a scale, each of a shape that (tokens, heads, head_dim) takes."""
        if scope == "channel":
            return self.low[None], self.high[None]
        axes = (0, 1) if scope == "tensor" else (1,)
        low: Values = self.low.min(axis=axes, keepdims=True)[None]
        high: Values = self.high.max(axis=axes, keepdims=True)[None]
        return low, high

    @property
    def largest(self) -> float:
        """The greatest magnitude."""
        return float(max(np.abs(self.low).max(), np.abs(self.high).max()))


def ranges_of(windows: Iterable[Values]) -> Ranges:
    """Over all windows of text together; raises ValueError without any."""
    lows, highs = [], []
    for values in windows:
        lows.append(values.min(axis=0))
        highs.append(values.max(axis=0))
    if not lows:
        raise ValueError("ranges need at least one window of text")
    return Ranges(low=np.min(lows, axis=0), high=np.max(highs, axis=0))
