"""OrderedEngine: an engine with policies inside that decide which prompt is prefilled when."""

from __future__ import annotations

import math
from random import Random

from mileage.costmodel.step_table import StepTable
from mileage.policy.budget.policy import StepLoad
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.long_gaps import LongGaps
from mileage.sim.prefill_plan import PrefillPlan
from mileage.sim.sequence import DECODING, PREFILLING, Sequence
from mileage.sim.step_math import blocks_of, pairs_of

__all__ = ["OrderedEngine"]


class OrderedEngine(Engine):
    """As `Engine`, but for the prompts: those with the lowest key go first, from step to step.

    One that is in the middle may be overtaken, and keeps its blocks meanwhile. One that waits
    begins where all of it fits beside what those in the middle still need; none that comes after it
    begins before it does. The policies say how many tokens of prompts a step has. They learn from
    every step how long steps take, and of a stretch that only decodes from its mean step.

    Where blocks are lacking for a chunk, the prompt waits for those that decode to end; where none
    does, the last ones in the order give theirs back.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        super().__init__(config, table, random)
        assert config.prefill is not None
        self._plan = PrefillPlan(config.prefill)
        itl_s = config.prefill.slo.itl_s
        self._long_gaps = LongGaps(math.inf if itl_s is None else itl_s)
        self._again_s = math.inf

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """A request comes that `fits`. True: `due_s` has changed."""
        known = self.pool.found(sequence) * sequence.unit_tokens
        self._plan.add(sequence, known, now_s)
        # It may overtake what holds up those that wait.
        return super().add(sequence, now_s) or self._cut(now_s)

    def finish_steps(self, now_s: float) -> None:
        """The steps in progress are over: call it at `due_s`, which is `now_s`."""
        steps = self._planned
        if steps:
            tokens, pairs, decoding = 0, 0.0, self.batch.count
            for sequence, chunk in self._chunks:
                tokens += chunk
                pairs += pairs_of(sequence.computed, chunk)
            kv_tokens = self.batch.context + decoding * (steps - 1) / 2
            took_s = (now_s - self._begun_s) / steps
            self._plan.learn(decoding, kv_tokens, tokens, pairs, took_s)
        super().finish_steps(now_s)

    def _record(self, steps: int) -> None:
        super()._record(steps)
        now = self.batch.steps
        self._long_gaps.took(now, self.timer.gaps(now - steps, now))

    def _spare_gaps(self) -> list[int]:
        decoding = [s for s in self.running if s.state == DECODING]
        return self._long_gaps.spare(decoding, self.batch.steps)

    def _past(self) -> list[tuple[int, float]]:
        now, now_s = self.batch.steps, self._begun_s
        return [
            (now - s.first_at + sum(map(len, s.past_gaps or ())), now_s - s.first_token_s)
            for s in self.running
            if s.state == DECODING
        ]

    def _plan_stretch(self) -> None:
        super()._plan_stretch()
        left_s = max(0.0, self._again_s - self._begun_s)
        if self._planned > 1 and left_s < self.timer.took_s(self._planned):
            self._planned = max(1, self.timer.steps_until(left_s, self._planned))

    def _preempt(self, now_s: float, extra: int = 0) -> Sequence:
        sequence = super()._preempt(now_s, extra)
        self._plan.again(sequence)
        return sequence

    def _add_prompts(self, budget: int, preemptions: int, now_s: float) -> None:
        self._retry, self._again_s = self.preemptions != preemptions, math.inf
        pending = self._plan.pending(now_s)
        if not pending or budget <= 0:
            return
        batch, blocked, most = self.batch, self._retry, self._chunk_max()
        load = StepLoad(batch.count, batch.context, budget, self._spare_gaps, self._past)
        budget, self._again_s = self._plan.tokens(pending, load, now_s)
        reserved = self._reserved(pending)
        for sequence in pending:
            if budget <= 0:
                break
            if sequence.state == PREFILLING:
                budget -= self._advance(sequence, min(budget, most))
            elif not blocked and len(self.running) < self.config.running_max:
                spare = reserved + (self._watermark if self.running else 0)
                chunk = self._start(sequence, min(budget, most), spare, now_s)
                blocked = not chunk
                budget -= chunk
                if chunk:
                    reserved += self._missing(sequence, sequence.computed + chunk)
        if not (self._chunks or batch.count):
            self._make_way(pending, most, now_s)

    def _missing(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that it still needs to be prefilled, when so many tokens have theirs."""
        size = self.config.block_tokens
        return blocks_of(sequence.target, size) - blocks_of(tokens, size)

    def _reserved(self, pending: list[Sequence]) -> int:
        return sum(self._missing(s, s.computed) for s in pending if s.state == PREFILLING)

    def _advance(self, sequence: Sequence, most: int) -> int:
        """A further chunk of a prompt that is in the middle, as far as blocks are free."""
        size = self.config.block_tokens
        room = (blocks_of(sequence.computed, size) + self.pool.free) * size - sequence.computed
        chunk = min(sequence.target - sequence.computed, most, room)
        if chunk > 0:
            self.pool.grow(sequence, sequence.computed + chunk)
            self._chunks.append((sequence, chunk))
        return max(0, chunk)

    def _make_way(self, pending: list[Sequence], most: int, now_s: float) -> None:
        """Nothing decodes, and no prompt has blocks to go on: the first gets those of others."""
        first = next((s for s in pending if s.state == PREFILLING), None)
        if first is None:
            return  # preempted just now: what waits is tried again after this
        for other in reversed(pending):
            if other is not first and other.state == PREFILLING:
                self._give_way(other, now_s)
                if self._advance(first, min(most, self.config.step_tokens_max)):
                    return

    def _give_way(self, sequence: Sequence, now_s: float) -> None:
        self.running.pop(sequence)
        self.running[sequence] = None  # the last one is the one to give way
        self._preempt(now_s)
