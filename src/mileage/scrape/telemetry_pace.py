"""Pace: how often to look, so that looking stays cheap."""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

_SMOOTHING: Final = 0.2
_SETTLED: Final = 5
"""Looks by which what a look costs is known."""
_PERIOD_MAX_S: Final = 10.0
_FAILURES_DOUBLED_MAX: Final = 6


class Pace:
    """The time between looks: `period_s`, or longer where a look costs more CPU time than
    `cost_ratio_max` of it; doubled with each failure in a row. At most 10 s.

    The cost is smoothed over some five looks. The first look, which opens files or a driver, does
    not count, and of the next few the cheapest does: one dear look sets no pace.
    """

    def __init__(self, period_s: float, *, cost_ratio_max: float) -> None:
        self._least_s, self._cost_ratio_max = period_s, cost_ratio_max
        self._cost_s = 0.0
        self._failures = 0
        self._looks = 0

    @property
    def period_s(self) -> float:
        """Between the beginnings of two looks, now."""
        period_s = max(self._least_s, self._cost_s / self._cost_ratio_max)
        return float(min(max(_PERIOD_MAX_S, self._least_s), period_s * 2**self._failures))

    def looked(self, cost_s: float, *, failed: bool = False) -> None:
        """A look took so much CPU time."""
        self._looks += 1
        if self._looks == 2:
            self._cost_s = cost_s
        elif 2 < self._looks <= _SETTLED:
            self._cost_s = min(self._cost_s, cost_s)
        elif self._looks > _SETTLED:
            self._cost_s += _SMOOTHING * (cost_s - self._cost_s)
        self._failures = min(_FAILURES_DOUBLED_MAX, self._failures + 1) if failed else 0
