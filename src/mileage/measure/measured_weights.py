"""MeasuredWeights: what a GPU's time was spent on, by its counters: compute, memory or links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mileage.measure.gpu_sample import GpuSample

__all__ = ["MeasuredWeights", "measured_weights"]

_DRAM_REACHED: Final = 0.8
"""DRAM_ACTIVE of a program that does nothing but read memory (NVIDIA's DCGM user guide)."""
_BUSY_MIN_RATIO: Final = 0.05
_SAMPLES_MIN: Final = 10


class MeasuredWeights(msgspec.Struct, frozen=True, gc=False):
    """Shares of a replica's busy time by what limited it; they sum to 1.

    `interconnect_ratio` is 0 for GPUs without links and where the links' use is not known:
    `interconnect_known` tells these apart.
    """

    compute_ratio: float
    memory_ratio: float
    interconnect_ratio: float
    interconnect_known: bool
    samples: int


def measured_weights(
    samples: Iterable[GpuSample], *, samples_min: int = _SAMPLES_MIN
) -> MeasuredWeights | None:
    """How the GPUs' time divides into the three dimensions; None where counters do not tell.

    Each dimension weighs as its use relative to what can be reached: SM_ACTIVE to 1, DRAM_ACTIVE to
    0.8, the busier direction of NVLink to its maximum; the mean over samples in which the GPU
    worked. GPU_UTIL and MEM_COPY_UTIL are not used: both are shares of time, near 1 together
    whatever limits the GPU. Needs `samples_min` samples with both counters.
    """
    compute = memory = links = 0.0
    count = links_known = 0
    for sample in samples:
        active, dram = sample.sm_active_ratio, sample.dram_active_ratio
        if active is None or dram is None or max(active, dram) < _BUSY_MIN_RATIO:
            continue
        count += 1
        compute += active
        memory += min(1.0, dram / _DRAM_REACHED)
        ratio = sample.nvlink_ratio
        if ratio is not None:
            links_known += 1
            links += ratio
    if count < max(1, samples_min):
        return None
    known = 2 * links_known > count
    parts = (compute / count, memory / count, links / links_known if known else 0.0)
    whole = sum(parts)
    return MeasuredWeights(
        parts[0] / whole,
        parts[1] / whole,
        parts[2] / whole,
        interconnect_known=known,
        samples=count,
    )
