"""RankTimer: how long the steps of one rank of several take, which all wait for the slowest."""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.step_table import StepTable
from mileage.sim.step_timer import StepTimer

__all__ = ["RankTimer"]

_STEPS_MAX = 2048


class RankTimer(StepTimer):
    """The table has the steps of all ranks together. A rank's own time is that of a step in which
    all ranks have its load: engines pad them to the largest."""

    __slots__ = ("_ends", "_given", "_ranks")

    def __init__(self, table: StepTable, ranks: int, random: Random) -> None:
        super().__init__(table, 0.0, random)
        self._ranks = ranks
        self._given: NDArray[np.float64] = np.empty(0)
        self._ends: NDArray[np.float64] = np.empty(0)

    @property
    def steps_max(self) -> int:
        """The most steps that can be planned at once."""
        return _STEPS_MAX

    def plan_mixed(self, decoding: int, context: float, tokens: int, pairs: float) -> None:
        """The next step computes so many tokens of prompts beside those that decode."""
        ranks = self._ranks
        super().plan_mixed(decoding * ranks, context * ranks, tokens * ranks, pairs * ranks)
        self.impose(self.own_s(1))

    def plan_decode(self, decoding: int, context: float) -> None:
        """The next steps only decode."""
        super().plan_decode(decoding * self._ranks, context * self._ranks)
        self.impose(self.own_s(_STEPS_MAX))

    def own_s(self, steps: int) -> NDArray[np.float64]:
        """What each of the planned steps would take if no other rank were slower."""
        times = np.empty(steps)
        self._fill(times)
        return times

    def impose(self, times: NDArray[np.float64]) -> None:
        """The planned steps take so long."""
        self._given, self._ends = times, times.cumsum()

    def took_s(self, steps: int) -> float:
        """Seconds of the first `steps` steps of the stretch."""
        return float(self._ends[steps - 1])

    def steps_until(self, time_s: float, planned: int) -> int:
        """The fewest steps that take at least `time_s`, which is less than `planned` ones take."""
        return int(self._ends.searchsorted(time_s)) + 1

    def record(self, steps: int) -> None:
        """So many steps of the stretch are over; there must be room."""
        times = self._times[self._kept : self._kept + steps]
        times[:] = self._given[:steps]
        times[-1] += self.late_s
        self._kept += steps
        self.late_s = 0.0
