"""StepClock: the steps of an engine that are in progress: when they end, and where they are cut."""

from __future__ import annotations

import math

from mileage.sim.sequence import Sequence
from mileage.sim.step_timer import StepTimer

__all__ = ["StepClock"]


class StepClock:
    """One stretch of steps after the other, which began at one time and are all due at another.

    While it lasts the stretch can be cut to the step in progress, and the engine can become slower
    or faster.
    """

    def __init__(self, timer: StepTimer) -> None:
        self.timer = timer
        self.due_s = math.inf
        """When the steps in progress are over; inf: there are none."""
        self._begun_s = 0.0
        self._planned = 0
        """Steps in progress."""
        self._chunks: list[tuple[Sequence, int]] = []
        """Parts of prompts in the step in progress, which is a single one then."""

    @property
    def computing(self) -> bool:
        """Whether there are steps in progress."""
        return self._planned > 0

    def steps_done(self, now_s: float) -> int:
        """Steps of those in progress that are over by now, of a stretch that only decodes."""
        if self._chunks or self._planned <= 1 or now_s <= self._begun_s:
            return 0
        if now_s >= self.due_s:
            return self._planned
        return min(self._planned, self.timer.steps_until(now_s - self._begun_s, self._planned)) - 1

    def step_age_s(self, now_s: float) -> float:
        """Seconds since the steps in progress began; 0 without any."""
        return now_s - self._begun_s if self._planned else 0.0

    def _cut(self, now_s: float) -> bool:
        """Let the stretch in progress end with the step that is in progress."""
        if self._chunks or self._planned <= 1:
            return False
        steps = max(1, self.timer.steps_until(now_s - self._begun_s, self._planned))
        if steps >= self._planned:
            return False
        self._planned = steps
        self.due_s = self._begun_s + self.timer.took_s(steps)
        return True

    def slow_down(self, slowdown: float, now_s: float) -> bool:
        """From now on steps take so many times as long as they would alone; what is left of the
        step in progress, too. True: `due_s` has changed."""
        before, self.timer.slowdown = self.timer.slowdown, slowdown
        if slowdown == before or not self._planned:
            return False
        self._cut(now_s)
        late_s = (self.due_s - now_s) * (slowdown / before - 1.0)
        self.due_s += late_s
        self.timer.late_s += late_s
        return True
