"""Processor sharing: of each moment all that are in flight get a part by their weights."""

from __future__ import annotations

import numpy as np

from mileage.ledger.columns import Floats

__all__ = ["covered_s", "shared_s"]


def covered_s(start_s: Floats, end_s: Floats, length_s: float) -> float:
    """Seconds of 0..length_s in which one of the spans lies: the length of their union."""
    begins = np.clip(start_s, 0.0, length_s)
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    ends = np.maximum.accumulate(np.clip(end_s, 0.0, length_s)[order])
    if not len(begins):
        return 0.0
    before = np.concatenate(([0.0], ends[:-1]))
    return float(np.maximum(0.0, ends - np.maximum(begins, before)).sum())


def shared_s(start_s: Floats, end_s: Floats, weights: Floats, length_s: float) -> Floats:
    """Of 0..length_s what each span gets; the sum is `covered_s`. Weights are above 0.

    By a virtual clock, as `mileage.control.gpu_meter.GpuMeter`, for spans that are all known.
    """
    begins = np.clip(start_s, 0.0, length_s)
    ends = np.maximum(begins, np.clip(end_s, 0.0, length_s))
    times = np.concatenate((begins, ends))
    order = np.argsort(times, kind="stable")
    moments = times[order]
    steps = np.concatenate((weights, -weights))[order]
    # Counted beside the weights, so that what rounding leaves of their sum is nobody's.
    counts = np.cumsum(np.where(order < len(begins), 1, -1))
    present = np.cumsum(steps)
    widths = np.diff(moments, append=moments[-1:])
    least = float(weights.min()) if len(weights) else 1.0
    rate = np.where(counts > 0, 1.0 / np.maximum(present, 0.5 * least), 0.0)
    clock = np.concatenate(([0.0], np.cumsum(rate * widths)[:-1])) if len(moments) else moments
    at = np.empty(len(times))
    at[order] = clock
    half = len(begins)
    shared: Floats = weights * (at[half:] - at[:half])
    return shared
