"""StepTimer: how long an engine's steps take, and how long its latest ones took."""

from __future__ import annotations

import math
from random import Random

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.step_table import StepTable
from mileage.measure.quantiles import rank
from mileage.sim.step_math import NEVER, mixed_line_s, steps_until, stretch_of, stretch_s

__all__ = ["GAP_QUANTILE", "StepTimer", "gap_figures"]

_FIRST = 4096
_NOISY_MAX = 2048
GAP_QUANTILE = 0.99
"""Of a request's own gaps: its inter-token latency."""
_RAMP: NDArray[np.float64] = np.arange(_FIRST, dtype=np.float64)

Stretch = tuple[float, float, int, float, float]
"""(c1, d1, turn, c2, d2) of `step_math`."""


class StepTimer:
    """Plans one stretch of steps after the other, and keeps the times of the latest ones.

    A mixed step is a stretch of one. Requests that decode together share the same steps, so that
    the gaps between a request's tokens are a slice of the log. With noise every step takes its time
    times a factor of its own: normal around 1, cut at three deviations.
    """

    __slots__ = (
        "_base",
        "_factors",
        "_kept",
        "_lines",
        "_noise",
        "_ramp",
        "_spread",
        "_stretch",
        "_times",
        "added_s",
        "late_s",
        "slowdown",
    )

    def __init__(self, table: StepTable, noise_ratio: float, random: Random) -> None:
        self._lines = tuple(
            (line.decode_s, line.mixed_s, line.kv_s, line.pair_s, line.request_s)
            for line in table.lines
        )
        self._spread = max(line.spread for line in table.lines)
        self._stretch: Stretch = (0.0, 0.0, NEVER, 0.0, 0.0)
        self._times: NDArray[np.float64] = np.empty(_FIRST)
        self._ramp = _RAMP
        self._base = self._kept = 0
        """Steps that are forgotten, and that are kept."""
        self._noise = (noise_ratio, np.random.Generator(np.random.PCG64(random.getrandbits(63))))
        self._factors: NDArray[np.float64] | None = np.empty(0) if noise_ratio else None
        self.added_s = 0.0
        """What each step that is planned takes besides."""
        self.slowdown = 1.0
        """A step takes so many times as long as if the engine had its GPU for itself."""
        self.late_s = 0.0
        """By so much the last step in progress ends later than it was planned."""

    @property
    def steps_max(self) -> int:
        """The most steps that can be planned at once."""
        return NEVER if self._factors is None else _NOISY_MAX

    # --- the stretch in progress --------------------------------------------------------------

    def plan_mixed(self, decoding: int, context: float, tokens: int, pairs: float) -> None:
        """The next step computes so many tokens of prompts beside those that decode."""
        time_s = 0.0
        if 0 < decoding < self._spread:
            context = context * self._spread / decoding  # not read side by side
        for _, mixed_s, kv_s, pair_s, request_s in self._lines:
            time_of_all_s = mixed_s[decoding + tokens]
            line_s = mixed_line_s(time_of_all_s, kv_s, pair_s, request_s, decoding, context, pairs)
            if line_s > time_s:
                time_s = line_s
        time_s = (time_s + self.added_s) * self.slowdown
        self._stretch = (time_s, 0.0, NEVER, 0.0, 0.0)

    def plan_decode(self, decoding: int, context: float) -> None:
        """The next steps only decode."""
        lines, added_s, slowdown = self._lines, self.added_s, self.slowdown
        grows: float = decoding  # tokens of context by which a step has more than the one before
        if 0 < decoding < self._spread:
            context, grows = context * self._spread / decoding, self._spread
        decode_s, _, kv_s, _, _ = lines[0]
        c1 = (decode_s[decoding] + kv_s * context + added_s) * slowdown
        d1 = kv_s * grows * slowdown
        if len(lines) == 1:
            self._stretch = (c1, d1, NEVER, 0.0, 0.0)
            return
        decode_s, _, kv_s, _, _ = lines[1]
        c2 = (decode_s[decoding] + kv_s * context + added_s) * slowdown
        d2 = kv_s * grows * slowdown
        self._stretch = stretch_of(c1, d1, c2, d2)

    def took_s(self, steps: int) -> float:
        """Seconds of the first `steps` steps of the stretch."""
        if self._factors is None:
            return stretch_s(steps, *self._stretch)
        return float(self._noisy(steps)[steps - 1])

    def steps_until(self, time_s: float, planned: int) -> int:
        """The fewest steps that take at least `time_s`, which is less than `planned` ones take."""
        if self._factors is None:
            return steps_until(time_s, *self._stretch)
        return int(self._noisy(planned).searchsorted(time_s)) + 1

    def _noisy(self, steps: int) -> NDArray[np.float64]:
        """Seconds until the end of each of the steps."""
        times = np.empty(steps)
        self._fill(times)
        times *= self._next_factors(steps)
        return times.cumsum()

    def _next_factors(self, steps: int) -> NDArray[np.float64]:
        factors = self._factors
        assert factors is not None
        if steps > len(factors):
            ratio, generator = self._noise
            drawn = generator.standard_normal(_FIRST).clip(-3.0, 3.0)
            self._factors = factors = np.concatenate((factors, 1.0 + ratio * drawn))
        return factors[:steps]

    def _fill(self, times: NDArray[np.float64]) -> None:
        """The times of the stretch's steps."""
        c1, d1, turn, c2, d2 = self._stretch
        steps = len(times)
        if steps > len(self._ramp):
            self._ramp = np.arange(2 * steps, dtype=np.float64)
        ramp = self._ramp[:steps]
        np.multiply(ramp, d1, out=times)
        times += c1
        if turn < steps:
            np.maximum(times, c2 + d2 * ramp, out=times)

    # --- the log ------------------------------------------------------------------------------

    def full(self, steps: int) -> bool:
        """Whether there is no room for so many more."""
        return self._kept + steps > len(self._times)

    def make_room(self, steps: int, oldest: int) -> None:
        """Forget the steps before the count `oldest`, for `steps` more."""
        drop = oldest - self._base
        kept = self._times[drop : self._kept]
        size = len(kept) + steps
        if 2 * size > len(self._times):
            times = np.empty(2 * size)
            times[: len(kept)] = kept
            self._times = times
        else:
            self._times[: len(kept)] = kept.copy()
        self._base, self._kept = oldest, len(kept)

    def record(self, steps: int) -> None:
        """So many steps of the stretch are over; there must be room."""
        if steps == 1 and self._factors is None:
            self._times[self._kept] = self._stretch[0] + self.late_s
            self._kept += 1
            self.late_s = 0.0
            return
        times = self._times[self._kept : self._kept + steps]
        self._fill(times)
        if self._factors is not None:
            times *= self._next_factors(steps)
            self._factors = self._factors[steps:]
        times[-1] += self.late_s
        self._kept += steps
        self.late_s = 0.0

    def gaps(self, start: int, end: int) -> NDArray[np.float64]:
        """Times of the steps between two counts of steps; a view."""
        return self._times[start - self._base : end - self._base]


def gap_figures(
    gaps: NDArray[np.float64], past: list[NDArray[np.float64]] | None, whole_s: float
) -> tuple[float, float]:
    """The p99 (nearest rank) and the mean of a request's gaps (one or more), whose sum is
    `whole_s`. NaN where there are none."""
    if past is not None:
        gaps = np.concatenate((*past, gaps))
    count = len(gaps)
    if count < 100:
        return (float(gaps.max()), whole_s / count) if count else (math.nan, math.nan)
    k = rank(GAP_QUANTILE, count) - 1
    return float(np.partition(gaps, k)[k]), whole_s / count
