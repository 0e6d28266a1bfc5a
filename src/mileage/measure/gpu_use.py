"""What of a GPU's figures tells how much of it was used, whichever its source has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["BANDWIDTH_FIGURES", "BUSY_FIGURES", "bandwidth_use", "idle_share"]

BANDWIDTH_FIGURES: Final = ("dram_active_ratio", "mem_copy_util_ratio")
"""Of GpuSample: the memory's active cycles, else the time in which it was used."""
BUSY_FIGURES: Final = ("sm_active_ratio", "gr_active_ratio", "gpu_util_ratio")
"""Cycles with work on the multiprocessors, else time with a kernel, which is more: one small kernel
hides all else."""


def bandwidth_use(figure: Callable[[str], float | None]) -> float | None:
    """Share 0..1 of the memory's bandwidth, by the figure of each name; None: not known."""
    return _first(map(figure, BANDWIDTH_FIGURES))


def idle_share(figure: Callable[[str], float | None]) -> float | None:
    """Share 0..1 of cycles, or of time, without work; None: not known."""
    busy = _first(map(figure, BUSY_FIGURES))
    return None if busy is None else 1.0 - busy


def _first(values: Iterable[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)
