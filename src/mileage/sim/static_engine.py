"""StaticEngine: batches that nobody joins, as servers had them before continuous batching."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import PREFILLING, WAITING, Sequence
from mileage.sim.step_log import StepPart
from mileage.sim.step_math import blocks_of

__all__ = ["StaticEngine"]


class StaticEngine(Engine):
    """A batch begins when as many requests wait as it may have, or when the first of them has
    waited for the delay, and ends with its longest answer: only then is any of them complete.

    First all prompts are computed, in as many steps as they take; then all first tokens come out at
    once, and all decode. What has its last token is computed on until the batch ends: its row, and
    its context, which grows, cost what they cost before. A batch has fewer requests where the
    blocks that they need in the end would not fit all together, so that none ever gives way.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        super().__init__(config, table, random)
        assert config.static_batch is not None
        self._size = min(config.static_batch.size, config.running_max)
        self._delay_s = config.static_batch.delay_s
        self._came_s: dict[Sequence, float] = {}
        self._ready: dict[Sequence, None] = {}
        """Of a batch whose prompts are being computed, those whose is."""
        self._over: dict[Sequence, int] = {}
        """Those that have their last token; their tokens of context less the count of steps."""

    # --- who comes and leaves -----------------------------------------------------------------

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """A request comes that `fits`. True: `due_s` has changed."""
        self._count_waiting(now_s)
        self.waiting.append(sequence)
        sequence.state = WAITING
        self._came_s[sequence] = now_s
        full = len(self.waiting) >= self._size
        due_s = min(self.due_s, now_s if full else now_s + self._delay_s)
        if self.running or due_s == self.due_s:
            return False
        self._begun_s, self.due_s = now_s, due_s
        return True

    def abort(self, sequence: Sequence, now_s: float) -> bool:
        """The request's client has left. True: `due_s` has changed.

        One that runs is there until the step in progress is over; with its last token, until its
        batch is.
        """
        self._came_s.pop(sequence, None)
        return super().abort(sequence, now_s)

    def _leave(self, now_s: float) -> None:
        self._leaving = [each for each in self._leaving if each not in self._over]
        super()._leave(now_s)
        if self._ready and not self._prefilling:
            self._open(now_s)
        self._close(now_s)

    def _drop(self, sequence: Sequence, extra: int = 0) -> None:
        if sequence in self._ready:
            del self._ready[sequence]
            self._prefilling[sequence] = None
        super()._drop(sequence, extra)

    # --- the end of steps ---------------------------------------------------------------------

    def _produce(self, sequence: Sequence, now_s: float) -> None:
        del self._prefilling[sequence]
        self._ready[sequence] = None
        if not self._prefilling:
            self._open(now_s)

    def _parts(self, steps: int) -> Iterator[StepPart]:
        begun, over = self.batch.steps - steps, {each.id for each in self._over}
        yield from (part for part in super()._parts(steps) if part.request_id not in over)
        for sequence, base in self._over.items():
            yield StepPart(sequence.id, 0, 1, base + begun, 0, 0)

    def _open(self, now_s: float) -> None:
        """All prompts of the batch are computed."""
        ready, self._ready = self._ready, {}
        for sequence in ready:
            self._prefilling[sequence] = None
            super()._produce(sequence, now_s)

    def _measure(self, sequence: Sequence, now_s: float) -> None:
        if sequence not in self._over:
            super()._measure(sequence, now_s)

    def _end(self, sequence: Sequence, now_s: float) -> None:
        self._measure(sequence, now_s)
        self._over[sequence] = sequence.computed - self.batch.steps
        self._close(now_s)

    def _close(self, now_s: float) -> None:
        """The batch is complete where all that are in it have their last token."""
        if len(self._over) == len(self.running):
            for sequence in self._over:
                super()._end(sequence, now_s)
            self._over = {}

    # --- the next step ------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Plan the next steps; `due_s` tells when they are over, or a batch is to begin."""
        super().begin(now_s)
        if self.waiting and self.due_s == math.inf:
            self.due_s = self._came_s[self.waiting[0]] + self._delay_s

    def _add_prompts(self, budget: int, preemptions: int, now_s: float) -> None:
        if self.waiting and not self.running:
            full = len(self.waiting) >= self._size
            if full or now_s >= self._came_s[self.waiting[0]] + self._delay_s:
                self._form(now_s)
        if self._prefilling:
            self._go_on(budget, now_s)

    def _form(self, now_s: float) -> None:
        """A batch out of the first that wait."""
        left, size = self.pool.blocks, self.config.block_tokens
        while self.waiting and len(self.running) < self._size:
            sequence = self.waiting[0]
            left -= blocks_of(sequence.target + max(0, sequence.output_tokens - 1), size)
            if left < 0:
                return
            self._count_waiting(now_s)
            self.waiting.popleft()
            del self._came_s[sequence]
            self.pool.start(sequence, self.pool.found(sequence))
            sequence.cached_tokens = sequence.computed
            sequence.state = PREFILLING
            self.running[sequence] = self._prefilling[sequence] = None

    def _plan_stretch(self) -> None:
        batch, over = self.batch, self._over
        context = batch.context + sum(over.values()) + len(over) * batch.steps
        self.timer.plan_decode(batch.count + len(over), context)
        self._planned = 1 if self._leaving else min(batch.steps_left(), self.timer.steps_max)
