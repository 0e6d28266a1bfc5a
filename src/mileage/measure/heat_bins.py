"""Heat bins: what was seen of rows over time, as means of equal stretches of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from mileage.measure.gpu_sample import GpuSample
from mileage.measure.gpu_use import bandwidth_use, idle_share

__all__ = ["HeatBins", "HeatPoint", "heat_bins", "heat_points"]


class HeatPoint(NamedTuple):
    """One look at one row: shares 0..1, None where not known."""

    row: str
    at_s: float
    bandwidth_ratio: float | None
    idle_ratio: float | None


class HeatBins(NamedTuple):
    """Columns of `width_s` from `start_s` on; `bandwidth[row][column]`, None is not known."""

    start_s: float
    width_s: float
    rows: tuple[str, ...]
    bandwidth: tuple[tuple[float | None, ...], ...]
    idle: tuple[tuple[float | None, ...], ...]


def heat_points(samples: Iterable[GpuSample]) -> Iterable[HeatPoint]:
    """A GPU's bandwidth use is its memory's active cycles, else the time in which its memory was
    used; it is idle in cycles without work on its multiprocessors, else in time without a kernel,
    which is less (one small kernel hides all of it)."""
    for sample in samples:
        figure = partial(getattr, sample)
        yield HeatPoint(sample.gpu.label, sample.at_s, bandwidth_use(figure), idle_share(figure))


def heat_bins(points: Iterable[HeatPoint], *, width_s: float, columns_max: int = 400) -> HeatBins:
    """Means by row and stretch. Stretches are at least `width_s` long, and whole multiples of it,
    so that there are at most `columns_max`. Rows are in the order in which they are first seen."""
    seen = list(points)
    if not seen:
        return HeatBins(0.0, width_s, (), (), ())
    start_s = math.floor(min(point.at_s for point in seen) / width_s) * width_s
    length_s = max(point.at_s for point in seen) - start_s
    width_s *= max(1, math.ceil((length_s / width_s + 1) / columns_max))
    columns = int(length_s / width_s) + 1
    rows = tuple(dict.fromkeys(point.row for point in seen))
    number = {row: place for place, row in enumerate(rows)}
    sums = [[[0.0] * columns for _ in rows] for _ in range(2)]
    counts = [[[0] * columns for _ in rows] for _ in range(2)]
    for point in seen:
        column = min(columns - 1, int((point.at_s - start_s) / width_s))
        for kind, value in enumerate((point.bandwidth_ratio, point.idle_ratio)):
            if value is not None:
                sums[kind][number[point.row]][column] += value
                counts[kind][number[point.row]][column] += 1
    means = [
        tuple(
            tuple(s / n if n else None for s, n in zip(row, row_counts, strict=True))
            for row, row_counts in zip(sums[kind], counts[kind], strict=True)
        )
        for kind in range(2)
    ]
    return HeatBins(start_s, width_s, rows, means[0], means[1])
