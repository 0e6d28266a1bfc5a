"""GapMedian: the median time between uses of a block, over the recent past."""

from __future__ import annotations

import math

__all__ = ["GapMedian"]

_BINS_PER_OCTAVE = 4
_SHORTEST_S = 2.0**-10
_BINS = 34 * _BINS_PER_OCTAVE  # up to half a year


class GapMedian:
    """A histogram over the logarithm of gaps; older gaps weigh less.

    When it has seen `memory_gaps`, all counts are halved, so what is older than a few times as many
    gaps has no say. The median is exact to a bin, 2^(1/4): 9 % to either side.
    """

    __slots__ = ("_counts", "_memory", "_total")

    def __init__(self, *, memory_gaps: int) -> None:
        self._memory = memory_gaps
        self._counts = [0.0] * _BINS
        self._total = 0.0

    def add(self, gap_s: float, count: int = 1) -> None:
        """So many blocks came back after `gap_s`; gaps of 0 are counted as the shortest."""
        place = math.log2(max(gap_s, _SHORTEST_S) / _SHORTEST_S) * _BINS_PER_OCTAVE
        self._counts[min(int(place), _BINS - 1)] += count
        self._total += count
        if self._total > self._memory:
            self._counts = [c / 2 for c in self._counts]
            self._total /= 2

    def median_s(self, *, samples_min: int) -> float | None:
        """The median in seconds; None while there are fewer than `samples_min` gaps."""
        if self._total < samples_min:
            return None
        rest = self._total / 2
        for place, count in enumerate(self._counts):
            rest -= count
            if rest <= 0:
                return _SHORTEST_S * math.exp2((place + 0.5) / _BINS_PER_OCTAVE)
        return None
