"""Engine: one replica in virtual time, iteration by iteration, with closed forms in between."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.step_table import StepTable
from mileage.sim.decode_batch import DecodeBatch, SlotBatch
from mileage.sim.engine_check import check_engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.kv_pool import KvPool
from mileage.sim.sequence import DECODING, GONE, PREFILLING, WAITING, Sequence
from mileage.sim.step_clock import StepClock
from mileage.sim.step_log import OnStretch, StepPart, Stretch
from mileage.sim.step_math import NEVER, blocks_of, pairs_of
from mileage.sim.step_timer import StepTimer, gap_figures

__all__ = ["Engine"]


class Engine(StepClock):
    """Continuous batching as vLLM's V1 scheduler does it.

    Each step every running request that is past its prompt decodes one token; what is left of the
    token budget goes to the prompts that are in the middle, in the order in which they began, and
    then to those that wait, first come first served. A request begins when its blocks are free.
    Blocks are taken as tokens come; where none is free, the request that began last gives all of
    its own back, goes to the front of the queue, and computes everything anew (then nothing begins
    in that step). Unlike in vLLM, decodes come before prompts that began earlier, which differs
    only where `long_prefill_tokens_max` lets several prompts use up the budget; and what an answer
    adds to its prompt is not found again when it is computed anew.

    A host calls `add` and `abort` at any time, and at `due_s`: `finish_steps`, which tells in
    `first` and `done` whose first token came and what is complete; and then, when all that these
    bring about is added, `begin`. A request that is added during a step joins at its end.

    Steps with parts of prompts are computed one by one. A stretch of steps that only decode is one
    event: it lasts until a request is complete, or blocks are lacking for a step, or someone joins.
    Steps, tokens and blocks are counted in integers; times follow from them.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        check_engine(config, table)
        super().__init__(StepTimer(table, config.noise_ratio, random))
        config = config.as_paged
        self.config, self.members = config, (self,)
        self.pool = KvPool(config.kv_blocks, config.block_tokens, caching=config.prefix_cache)
        make_batch = DecodeBatch if config.kv_layout == "paged" else SlotBatch
        self.batch = make_batch(config.block_tokens)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        """In the order in which they began; the last one is the first to give way."""
        self.first: list[Sequence] = []
        self.done: list[Sequence] = []
        self.preemptions = self.finished = 0
        self.output_tokens = self.prompt_tokens = self.prefill_tokens = self.decode_tokens = 0
        """Generated; of prompts whose first token came; computed of prompts (also anew), and one by
        one."""
        self.busy_s = self.running_s = self.waiting_s = 0.0
        """Time with steps in progress, and integrals over time of the requests."""
        self.load_tokens = self.adapter_loads = 0
        """Loaded from other memory instead of computed; and adapters brought to the GPU."""
        self.on_stretch: OnStretch | None = None
        self._watermark = int(config.watermark_ratio * config.kv_blocks)
        self._prefilling: dict[Sequence, None] = {}
        self._changed_s = 0.0
        self._retry = False
        """Whatever waits is to be tried again after the next step."""
        self._leaving: list[Sequence] = []

    # --- for the host -------------------------------------------------------------------------

    def fits(self, sequence: Sequence) -> bool:
        """Whether the engine could ever serve such a request: all of it must fit into the cache,
        and into one step where prompts are not cut (also after it gave way)."""
        tokens = sequence.prompt_tokens + max(0, sequence.output_tokens - 1)
        if not self.config.chunked_prefill and tokens > self.config.step_tokens_max:
            return False
        most = self.config.kv_blocks if self.config.kv_layout == "paged" else 1
        return blocks_of(tokens, self.config.block_tokens) <= most

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """A request comes that `fits`. True: `due_s` has changed."""
        self._count_waiting(now_s)
        blocked = bool(self.waiting)
        self.waiting.append(sequence)
        sequence.state = WAITING
        if not self._planned and self.due_s > now_s:
            self._begun_s = self.due_s = now_s
            return True
        if blocked or len(self.running) >= self.config.running_max:
            return False  # those before it wait for the same steps to end
        return self._cut(now_s)

    def abort(self, sequence: Sequence, now_s: float) -> bool:
        """The request's client has left. True: `due_s` has changed.

        One that runs is there until the step in progress is over.
        """
        if sequence.state == WAITING:
            self._count_waiting(now_s)
            self.waiting.remove(sequence)
            sequence.state = GONE
            return self._cut(now_s)  # it may have been what those behind it waited for
        if sequence.state == GONE:
            return False
        self._leaving.append(sequence)
        return self._cut(now_s)

    def restart(self) -> None:
        """Its process starts anew, with nothing to do and with empty caches."""
        self.pool.clear()

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self.waiting)

    def blocks_used(self, now_s: float) -> int:
        """Blocks that requests have now."""
        used = self.pool.blocks - self.pool.free
        done = self.steps_done(now_s)
        return used + self.batch.blocks_after(done - 1) if done > 1 else used

    def _count_waiting(self, now_s: float) -> None:
        self.waiting_s += len(self.waiting) * (now_s - self._changed_s)
        self._changed_s = now_s

    # --- the end of steps ---------------------------------------------------------------------

    def finish_steps(self, now_s: float) -> None:
        """The steps in progress are over: call it at `due_s`, which is `now_s`."""
        self.first.clear()
        self.done.clear()
        steps = self._planned
        if steps:
            self._planned = 0
            took_s = now_s - self._begun_s
            self.busy_s += took_s
            self.running_s += took_s * len(self.running)
            self._record(steps)
            self._decoded(steps)
            if self.on_stretch is not None:
                times = self.timer.gaps(self.batch.steps - steps, self.batch.steps).copy()
                self.on_stretch(Stretch(self._begun_s, times, tuple(self._parts(steps))))
            for sequence in self.batch.ended():
                self._end(sequence, now_s)
            if self._chunks:
                chunks, self._chunks = self._chunks, []
                for sequence, chunk in chunks:
                    self.prefill_tokens += chunk
                    sequence.computed += chunk
                    if sequence.computed == sequence.target:
                        self._produce(sequence, now_s)
        if self._leaving:
            self._leave(now_s)

    def _record(self, steps: int) -> None:
        timer, batch = self.timer, self.batch
        if timer.full(steps):
            decoding = (s.first_at for s in self.running if s.state == DECODING)
            timer.make_room(steps, min(decoding, default=batch.steps))
        timer.record(steps)
        if steps > 1 and (blocks := batch.blocks_after(steps - 1)):
            self.pool.take(blocks)
        batch.steps += steps

    def _decoded(self, steps: int) -> None:
        """Each of those that decode has so many tokens more."""
        decoded = steps * self.batch.count
        self.output_tokens += decoded
        self.decode_tokens += decoded

    def _parts(self, steps: int) -> Iterator[StepPart]:
        """Of the first of the steps that are over just now."""
        for sequence in self.running:
            if sequence.state == DECODING:
                context, rows, out = self.batch.share_of(sequence, steps)
                yield StepPart(sequence.id, 0, rows, context, 0, out)
        for sequence, chunk in self._chunks:
            before = sequence.computed
            again = max(0, min(sequence.lost, before + chunk) - before)
            out = int(before + chunk == sequence.target and sequence.output_tokens > 0)
            yield StepPart(sequence.id, chunk, 0, before, again, out)

    def _gaps(self, sequence: Sequence) -> NDArray[np.float64]:
        """Between its tokens since it last began to decode."""
        gaps = self.timer.gaps(sequence.first_at, self.batch.steps)
        if sequence.delay_s and len(gaps):
            gaps = gaps.copy()
            gaps[0] += sequence.delay_s
            sequence.delay_s = 0.0
        return gaps

    def _measure(self, sequence: Sequence, now_s: float) -> None:
        """Its last token has come out."""
        if sequence.output_tokens > 1:
            gaps = self._gaps(sequence)
            whole_s = now_s - sequence.first_token_s
            sequence.itl_p99_s, sequence.itl_mean_s = gap_figures(gaps, sequence.past_gaps, whole_s)

    def _end(self, sequence: Sequence, now_s: float) -> None:
        self._measure(sequence, now_s)
        del self.running[sequence]
        self.pool.release(sequence, sequence.computed)
        sequence.state = GONE
        sequence.finished_s = now_s
        self.finished += 1
        self.done.append(sequence)

    def _produce(self, sequence: Sequence, now_s: float) -> None:
        """All that is known of the sequence is computed: its next token comes out."""
        del self._prefilling[sequence]
        if not sequence.produced:
            self.prompt_tokens += sequence.prompt_tokens
            sequence.first_token_s = now_s
            self.first.append(sequence)
        elif sequence.past_gaps is not None:
            sequence.past_gaps[-1][-1] = now_s - sequence.last_token_s
        if sequence.output_tokens:
            sequence.produced += 1
            self.output_tokens += 1
        if sequence.produced < sequence.output_tokens:
            self.batch.join(sequence)
            return
        sequence.first_at = self.batch.steps
        self._end(sequence, now_s)

    def _leave(self, now_s: float) -> None:
        leaving, self._leaving = self._leaving, []
        for sequence in leaving:
            if sequence.state == GONE:
                continue
            if sequence.state == WAITING:  # it was preempted since
                self._count_waiting(now_s)
                self.waiting.remove(sequence)
            else:
                self._drop(sequence)
            sequence.state = GONE

    def _drop(self, sequence: Sequence, extra: int = 0) -> None:
        """The sequence runs no longer, and gives its blocks back."""
        del self.running[sequence]
        if sequence.state == DECODING:
            self.batch.leave(sequence)
            extra = extra if sequence.computed % self.config.block_tokens == 0 else 0
        else:
            del self._prefilling[sequence]
            extra = 0
        self.pool.release(sequence, sequence.computed, extra)

    # --- the next step ------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Plan the next steps; `due_s` tells when they are over."""
        self._begun_s = now_s
        preemptions, batch, pool = self.preemptions, self.batch, self.pool
        blocks = batch.blocks_now()
        while blocks > pool.free:
            # Those that began first have taken what there was.
            taken = pool.free
            pool.take(taken)
            before = batch.blocks_now()
            self._preempt(now_s)
            blocks += batch.blocks_now() - before - taken
        if blocks:
            pool.take(blocks)
        budget = self.config.step_tokens_max - batch.count
        self._add_prompts(budget, preemptions, now_s)
        if self._chunks:
            self._plan_mixed()
        elif batch.count:
            self._plan_stretch()
        else:
            self.due_s = math.inf
            return
        self.due_s = now_s + self.timer.took_s(self._planned)

    def _add_prompts(self, budget: int, preemptions: int, now_s: float) -> None:
        """Add parts of prompts to the step. `preemptions`: their count before it was planned."""
        if self._prefilling:
            budget = self._go_on(budget, now_s)
        self._retry = self.preemptions != preemptions
        if self.waiting and not self._retry:
            self._admit(budget, now_s)

    def _preempt(self, now_s: float, extra: int = 0) -> Sequence:
        """The request that began last gives way.

        `extra`: blocks that those have taken already that need one for the next step.
        """
        sequence = next(reversed(self.running))
        was = sequence.state
        self._drop(sequence, extra)
        if was == DECODING:
            gaps = self._gaps(sequence)
            sequence.last_token_s, sequence.delay_s = now_s - sequence.delay_s, 0.0
            # With a place for the gap that this makes.
            sequence.past_gaps = [*(sequence.past_gaps or ()), np.append(gaps, math.nan)]
        sequence.target = sequence.prompt_tokens + sequence.produced
        sequence.lost = max(sequence.lost, sequence.computed)
        sequence.computed = 0
        sequence.state = WAITING
        sequence.preemptions += 1
        self.preemptions += 1
        self._count_waiting(now_s)
        self.waiting.appendleft(sequence)
        return sequence

    def _chunk_max(self) -> int:
        """The most tokens of one prompt; a request that is alone has all of the budget."""
        most = self.config.long_prefill_tokens_max
        return NEVER if most is None or len(self.running) + len(self.waiting) <= 1 else most

    def _go_on(self, budget: int, now_s: float) -> int:
        """Further chunks of the prompts that are in the middle; what is left of the budget."""
        pool, block_tokens, most = self.pool, self.config.block_tokens, self._chunk_max()
        for sequence in list(self._prefilling):
            if budget <= 0 or sequence.state != PREFILLING:
                break  # one that gave way began after all those that did not
            chunk = min(sequence.target - sequence.computed, budget, most)
            tokens, decoding = sequence.computed + chunk, self.batch.count
            blocks = blocks_of(tokens, block_tokens) - blocks_of(sequence.computed, block_tokens)
            while blocks > pool.free and self._preempt(now_s, extra=1) is not sequence:
                pass
            budget += decoding - self.batch.count
            if sequence.state != PREFILLING:
                break
            pool.grow(sequence, tokens)
            self._chunks.append((sequence, chunk))
            budget -= chunk
        return budget

    def _admit(self, budget: int, now_s: float) -> None:
        waiting, most = self.waiting, self._chunk_max()
        while waiting and budget > 0 and len(self.running) < self.config.running_max:
            spare = self._watermark if self.running else 0
            chunk = self._start(waiting[0], min(budget, most), spare, now_s)
            if not chunk:
                return
            budget -= chunk

    def _start(self, sequence: Sequence, most: int, spare: int, now_s: float) -> int:
        """One that waits begins, where that leaves `spare` blocks: the tokens of its first chunk;
        0: it does not fit."""
        pool = self.pool
        found = pool.found(sequence)
        known = found * sequence.unit_tokens
        chunk = min(sequence.target - known, most)
        if chunk < sequence.target - known and not self.config.chunked_prefill:
            return 0
        tokens = sequence.target if self.config.whole_prompt_fits else known + chunk
        if not pool.admits(sequence, found, tokens, spare):
            return 0
        self._count_waiting(now_s)
        if self.waiting[0] is sequence:
            self.waiting.popleft()
        else:
            self.waiting.remove(sequence)
        pool.start(sequence, found)
        pool.grow(sequence, known + chunk)
        if sequence.cached_tokens < 0:
            sequence.cached_tokens = known
        sequence.state = PREFILLING
        self.running[sequence] = self._prefilling[sequence] = None
        self._chunks.append((sequence, chunk))
        return chunk

    def _plan_mixed(self) -> None:
        tokens, pairs = 0, 0.0
        for sequence, chunk in self._chunks:
            tokens += chunk
            pairs += pairs_of(sequence.computed, chunk)
        self._planned = 1
        self.timer.plan_mixed(self.batch.rows, self.batch.context, tokens, pairs)

    def _plan_stretch(self) -> None:
        batch, free = self.batch, self.pool.free
        self.timer.plan_decode(batch.rows, batch.context)
        steps = 1
        # A prompt that was found in part may need less room once that is overwritten.
        retry = bool(self.waiting and self.waiting[0].keys) and not self.config.whole_prompt_fits
        if not (self._retry or self._leaving or retry):
            steps = min(batch.steps_left(), self.timer.steps_max)
            # The blocks of the first step are taken already.
            if steps > 1 and batch.blocks_after(steps - 1) > free:
                steps = 1 + batch.steps_within(free)
        self._planned = steps
