"""batch_half(): how exactly one run tells the mean of a figure that it has second by second."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mileage.measure.distributions import t_critical

__all__ = ["batch_half"]

_BATCHES = 10
_ENTRIES_MIN = 2
"""Of a batch; shorter ones depend on each other too much."""


def batch_half(values: Sequence[float], *, level: float = 0.95) -> float | None:
    """Half of Student's interval for the mean of `values`, which are in order of time.

    By batch means: neighbours depend on each other, the means of ten long batches of them hardly
    do (Law, Simulation Modeling and Analysis, 9.5.3). Entries that do not fill the last
    batch are left out. None for fewer than 20 values. Raises ValueError for a level that is none.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"got a level of {level!r}, expected one within 0 and 1")
    size = len(values) // _BATCHES
    if size < _ENTRIES_MIN:
        return None
    means = [statistics.fmean(values[i * size : (i + 1) * size]) for i in range(_BATCHES)]
    half = t_critical(1.0 - level, _BATCHES - 1) * statistics.stdev(means)
    return half / math.sqrt(_BATCHES)
