"""RankGroup: data-parallel ranks of attention, which step together."""

from __future__ import annotations

import math
from random import Random

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_check import check_engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_group import EngineGroup, least_busy
from mileage.sim.rank_timer import RankTimer
from mileage.sim.sequence import Sequence
from mileage.sim.serving_engine import ServingEngine

__all__ = ["RankGroup"]


class _Rank(ServingEngine):
    def __init__(self, config: EngineConfig, table: StepTable, random: Random, ranks: int) -> None:
        super().__init__(config, table, random)
        self.timer: RankTimer = RankTimer(table, ranks, random)

    @property
    def planned(self) -> int:
        """Steps in progress."""
        return self._planned

    def keep_step(self, times: NDArray[np.float64], now_s: float) -> None:
        """The steps that were planned are these."""
        self._planned = len(times)
        self.timer.impose(times)
        self.due_s = now_s + self.timer.took_s(len(times))

    def cut(self, now_s: float) -> None:
        """Let the stretch end with the step in progress."""
        self._cut(now_s)


class RankGroup(EngineGroup):
    """Each rank has an equal share of the blocks, of the requests that run, and of the tokens of a
    step. A request goes to the rank with the fewest. Every step takes as long as that of the
    slowest rank; a rank with nothing to do waits for it, too.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        check_engine(config, table)
        ranks = config.dp_ranks
        share = msgspec.structs.replace(
            config,
            dp_ranks=1,
            noise_ratio=0.0,
            kv_blocks=config.kv_blocks // ranks,
            running_max=config.running_max // ranks,
            step_tokens_max=config.step_tokens_max // ranks,
        )
        self._ranks = [_Rank(share, table, random, ranks) for _ in range(ranks)]
        super().__init__(config, self._ranks)
        self._noise_ratio = config.noise_ratio
        self._noise = np.random.Generator(np.random.PCG64(random.getrandbits(63)))

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """A request comes that `fits`. True: `due_s` has changed."""
        place = self._places[sequence] = least_busy(self._ranks)
        return place.add(sequence, now_s) and self._look(now_s)

    def abort(self, sequence: Sequence, now_s: float) -> bool:
        """The request's client has left. True: `due_s` has changed."""
        place = self._places.pop(sequence, None)
        if place is not None:
            place.abort(sequence, now_s)
        return self._look(now_s)

    def _look(self, now_s: float) -> bool:
        """All ranks end with the step in progress; without one, the next begins."""
        active = [rank for rank in self._ranks if rank.planned]
        for rank in active:
            rank.cut(now_s)
        due_s = min(rank.due_s for rank in active or self._ranks)
        changed, self.due_s = due_s != self.due_s, due_s
        return changed and due_s < math.inf

    def finish_steps(self, now_s: float) -> None:
        """The steps in progress are over: call it at `due_s`."""
        self.first, self.done = [], []
        for rank in self._ranks:
            self._finish(rank, now_s)

    def begin(self, now_s: float) -> None:
        """Plan the next steps; `due_s` tells when they are over."""
        for rank in self._ranks:
            rank.begin(now_s)
        active = [rank for rank in self._ranks if rank.planned]
        if active:
            steps = min(rank.planned for rank in active)
            times = np.max([rank.timer.own_s(steps) for rank in active], axis=0)
            if self._noise_ratio:
                drawn = self._noise.standard_normal(steps).clip(-3.0, 3.0)
                times *= 1.0 + self._noise_ratio * drawn
            # A rank that waits for a load takes part in the next step after it.
            loaded_s = min((r.due_s for r in self._ranks if not r.planned), default=math.inf)
            ends = times.cumsum()
            if loaded_s - now_s < ends[-1]:
                times = times[: int(ends.searchsorted(loaded_s - now_s)) + 1]
            for rank in active:
                rank.keep_step(times, now_s)
        self.due_s = min(rank.due_s for rank in active or self._ranks)
