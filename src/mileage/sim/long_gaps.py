"""LongGaps: which of an engine's latest steps took longer than the ITL target."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from mileage.measure.quantiles import rank
from mileage.sim.sequence import Sequence
from mileage.sim.step_timer import GAP_QUANTILE

__all__ = ["LongGaps"]

_KEPT_MAX = 1024


class LongGaps:
    """Those that decode together share their steps, so that the steps of an engine, counted by
    its batch, are the gaps of all: which of these were long is all that is kept."""

    __slots__ = ("_long", "_target_s")

    def __init__(self, target_s: float) -> None:
        self._target_s = target_s
        self._long: list[int] = []
        """Counts of steps with which long ones ended."""

    def took(self, steps: int, times: NDArray[np.float64]) -> None:
        """The latest steps, up to the count `steps`, took so long, each."""
        long = np.flatnonzero(times > self._target_s)
        if len(long):
            self._long.extend((steps - len(times) + 1 + long).tolist())

    def spare(self, decoding: Collection[Sequence], steps: int) -> list[int]:
        """Of each of these, at this count of steps: if the next gap were its last one, how many of
        its gaps might be long and the quantile of all still within the target, less those that were
        long so far. What it has yet to generate may make more of them good."""
        found = []
        for sequence in decoding:
            gaps = steps - sequence.first_at + 1
            long = len(self._long) - bisect_right(self._long, sequence.first_at)
            for past in sequence.past_gaps or ():
                gaps += len(past)
                long += int(np.count_nonzero(past > self._target_s))
            found.append(gaps - rank(GAP_QUANTILE, gaps) - long)
        if len(self._long) > _KEPT_MAX:
            oldest = min((sequence.first_at for sequence in decoding), default=steps)
            del self._long[: bisect_right(self._long, oldest)]
        return found
