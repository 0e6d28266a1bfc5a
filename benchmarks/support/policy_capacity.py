"""Capacity: the highest rate at which a cell keeps its targets under an arm, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from benchmarks.support.policy_arms import NOISE_RATIO, Arm
from benchmarks.support.policy_cells import SLO, Cell, at_rate, windows_of
from mileage.core.slo import Slo
from mileage.sim.fast.run import run_fast
from mileage.sim.outcome import OK
from mileage.sim.simulation import SimConfig, SimResult, Simulation
from mileage.sim.summary import attained
from mileage.workload.columns import columns_of
from mileage.workload.trace_request import TraceRequest

__all__ = ["ATTAINED_MIN", "DECILE_MIN", "Capacity", "Judge", "Point", "capacity"]

ATTAINED_MIN = 0.95
DECILE_MIN = 0.85
_DECILES = 10
_TOP_RATIO = 0.03
_STEP = 1.15
_QUIET = 1.0 - 2.0 * NOISE_RATIO
"""What a noisy p99 of gaps is above a quiet one, about."""
_UNLOADED_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class Point:
    """What came of one rate. Shares of all requests; one that was refused has missed."""

    rate_rps: float
    attained_ratio: float
    worst_decile_ratio: float
    """Of the tenths of the requests by the length of their prompts."""
    longest_ratio: float
    """Of the longest 3 %."""
    refused_ratio: float

    @property
    def kept(self) -> bool:
        """Both bars are met."""
        return self.attained_ratio >= ATTAINED_MIN and self.worst_decile_ratio >= DECILE_MIN

    @property
    def goodput_rps(self) -> float:
        """Requests per second that met all their targets."""
        return self.rate_rps * self.attained_ratio


@dataclass(frozen=True, slots=True)
class Judge:
    """Which windows are run, and which definition of a request's own ITL counts."""

    starts: tuple[float, ...]
    count: int
    itl: str = "p99"

    def point(self, cell: Cell, arm: Arm, rate_rps: float) -> Point:
        """Run all windows at this rate."""
        results = []
        for index, window in enumerate(_windows(cell.trace, self.starts, self.count)):
            simulation = Simulation(
                [arm.replica(cell)], control=arm.control(), config=SimConfig(seed=index)
            )
            results.append(simulation.run(at_rate(window, rate_rps)))
        return self._judged(cell, rate_rps, results, SLO)

    def screened(self, cell: Cell, arm: Arm, rate_rps: float) -> Point:
        """The same of an arm with nothing before the engine, by compiled code: without the noise of
        steps, and with a target for the gaps that leaves room for it."""
        engine = replace(arm.replica(cell).engine, noise_ratio=0.0)
        spec = replace(arm.replica(cell), engine=engine)
        results = [
            run_fast(columns_of(at_rate(window, rate_rps)), [spec], arm.control())
            for window in _windows(cell.trace, self.starts, self.count)
        ]
        assert SLO.itl_s is not None
        return self._judged(cell, rate_rps, results, replace(SLO, itl_s=_QUIET * SLO.itl_s))

    def _judged(self, cell: Cell, rate_rps: float, results: Sequence[SimResult], slo: Slo) -> Point:
        met, prompts, refused = [], [], 0
        for result in results:
            targets = _ttft_targets_s(cell, result)
            met.append(attained(result, slo=slo, ttft_targets_s=targets, itl=self.itl))
            prompts.append(np.array(result.outcomes.prompt_tokens, dtype=np.int64))
            refused += sum(result.rejections.values())
        all_met = np.concatenate(met)
        ordered = all_met[np.argsort(np.concatenate(prompts), kind="stable")]
        deciles = [float(part.mean()) for part in np.array_split(ordered, _DECILES)]
        longest = ordered[-max(1, round(_TOP_RATIO * len(ordered))) :]
        return Point(
            rate_rps,
            float(all_met.mean()),
            min(deciles),
            float(longest.mean()),
            refused / len(all_met),
        )


@lru_cache(maxsize=8)
def _windows(trace: str, starts: tuple[float, ...], count: int) -> list[list[TraceRequest]]:
    return windows_of(trace, starts, count)


def _ttft_targets_s(cell: Cell, result: SimResult) -> list[float]:
    """Of each request: 2 s, or three times what its uncached tokens take alone where that is more.

    Of one that was refused nothing is asked: it has missed.
    """
    out = result.outcomes
    floor_s = SLO.ttft_s or 0.0
    targets = []
    for status, prompt, cached in zip(
        out.status, out.prompt_tokens, out.cached_tokens, strict=True
    ):
        if status != OK:
            targets.append(floor_s)
        else:
            targets.append(max(floor_s, _UNLOADED_RATIO * cell.unloaded_s(prompt, cached)))
    return targets


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate that was seen to be kept, and what it looked like; 0: none was."""

    arm: Arm
    rate_rps: float
    point: Point | None
    points: int


def capacity(
    point: Callable[[float], Point],
    arm: Arm,
    *,
    guess_rps: float,
    least_rps: float = 0.0,
    precision: float = 0.03,
    floor_rps: float = 0.02,
) -> Capacity:
    """Bisect on a logarithmic scale. `least_rps`: below this it is not worth knowing (0 then)."""
    runs = 0
    best: Point | None = None

    def kept(rate: float) -> bool:
        nonlocal runs, best
        runs += 1
        found = point(rate)
        if found.kept:
            best = found if best is None or rate > best.rate_rps else best
        return found.kept

    if least_rps > 0.0 and not kept(least_rps):
        return Capacity(arm, 0.0, None, runs)
    rate, step = max(guess_rps, _STEP * least_rps), _STEP
    if kept(rate):
        low = rate
        while kept(low * step):
            low *= step
            step *= _STEP
        high = low * step
    else:
        high = rate
        low = least_rps or rate / step
        while not least_rps and not kept(low):
            if low <= floor_rps:
                return Capacity(arm, 0.0, None, runs)
            high = low
            step *= _STEP
            low = max(floor_rps, low / step)
    while high / low > 1.0 + precision:
        middle = math.sqrt(low * high)
        if kept(middle):
            low = middle
        else:
            high = middle
    return Capacity(arm, low, best, runs)
