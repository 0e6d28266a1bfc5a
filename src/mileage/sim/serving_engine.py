"""ServingEngine: an engine with KV tiers, LoRA adapters, and an eviction policy of its own."""

from __future__ import annotations

import math
from random import Random

from mileage.costmodel.step_table import StepTable
from mileage.sim.adapter_slots import AdapterSlots
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.kv_tiers import KvTiers
from mileage.sim.ranked_pool import RankedPool
from mileage.sim.sequence import GONE, LOADING, PREFILLING, Sequence
from mileage.sim.step_math import blocks_of

__all__ = ["ServingEngine"]


class ServingEngine(Engine):
    """As `Engine`, with what its configuration asks for besides.

    **KV tiers.** Where a prompt goes on in a tier behind what of it is in the GPU's cache, its
    blocks are taken, and it waits until they are loaded, while others run; it counts among those
    that may run at once. It is prefilled from there in the first step that begins after that.

    **Adapters.** A request begins only beside at most `slots` - 1 other adapters; those behind it
    may go before it. The step in which an adapter is brought to the GPU waits for it.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        super().__init__(config, table, random)
        config = self.config
        if config.eviction is not None:
            self.pool = RankedPool(config.kv_blocks, config.block_tokens, config.eviction)
        self.tiers = KvTiers(config.kv_tiers, self.pool) if config.kv_tiers else None
        self.adapters = None if config.adapters is None else AdapterSlots(config.adapters)
        self._adapters_s = 0.0
        """What the next step waits for adapters."""

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """A request comes that `fits`. True: `due_s` has changed."""
        if super().add(sequence, now_s):
            return True
        # Its adapter may let it overtake those that wait.
        return self.adapters is not None and self._cut(now_s)

    def restart(self) -> None:
        """Its process starts anew, with nothing to do and with empty caches; what was stored behind
        the host's memory, in the second tier and beyond, stays."""
        super().restart()
        if self.tiers is not None:
            self.tiers.restart()
        if self.config.adapters is not None:
            self.adapters = AdapterSlots(self.config.adapters, loads=self.adapter_loads)

    @property
    def queued(self) -> int:
        """Requests that wait, those that wait for a load included."""
        return len(self.waiting) + (0 if self.tiers is None else len(self.tiers.loading))

    def begin(self, now_s: float) -> None:
        """Plan the next steps; `due_s` tells when they are over."""
        self.pool.now_s = now_s
        tiers = self.tiers
        if tiers is not None and tiers.loading:
            self._count_waiting(now_s)
            for sequence in tiers.ready(now_s):
                self.pool.grow(sequence, sequence.computed)  # known from now on
                sequence.state = PREFILLING
                self.running[sequence] = self._prefilling[sequence] = None
        super().begin(now_s)
        if tiers is not None and tiers.loading and self.due_s == math.inf:
            self.due_s = tiers.next_s

    def _admit(self, budget: int, now_s: float) -> None:
        waiting, most, passed = self.waiting, self._chunk_max(), 0
        while len(waiting) > passed and budget > 0:
            if self._runs_or_loads >= self.config.running_max:
                return
            sequence = waiting[passed]
            if self.adapters is not None and not self.adapters.admits(sequence.adapter):
                passed += 1
                continue
            spare = self._watermark if self.running else 0
            if self._load(sequence, spare, now_s):
                continue
            chunk = self._start(sequence, min(budget, most), spare, now_s)
            if not chunk:
                return
            budget -= chunk

    @property
    def _runs_or_loads(self) -> int:
        return len(self.running) + (0 if self.tiers is None else len(self.tiers.loading))

    def _start(self, sequence: Sequence, most: int, spare: int, now_s: float) -> int:
        chunk = super()._start(sequence, most, spare, now_s)
        if chunk and self.adapters is not None:
            self._begin_adapter(sequence, now_s)
        return chunk

    def _load(self, sequence: Sequence, spare: int, now_s: float) -> bool:
        """The rest of what is known of its prompt is loaded, where a tier has it and there is
        room."""
        pool, tiers = self.pool, self.tiers
        if tiers is None:
            return False
        found = pool.found(sequence)
        more = tiers.follow(sequence, found)
        tokens = (found + more) * sequence.unit_tokens
        needed = sequence.target if self.config.whole_prompt_fits else tokens
        if not more or not pool.admits(sequence, found, needed, spare):
            return False
        self._count_waiting(now_s)
        self.waiting.remove(sequence)
        pool.start(sequence, found)
        tiers.load(sequence, sequence.keys[found : found + more], now_s)
        self.load_tokens += more * sequence.unit_tokens
        size = self.config.block_tokens
        pool.take(blocks_of(tokens, size) - blocks_of(sequence.computed, size))
        sequence.computed = tokens
        if sequence.cached_tokens < 0:
            sequence.cached_tokens = tokens
        sequence.state = LOADING
        if self.adapters is not None:
            self._begin_adapter(sequence, now_s)
        return True

    # --- steps --------------------------------------------------------------------------------

    def _plan_mixed(self) -> None:
        self._add_time()
        super()._plan_mixed()

    def _plan_stretch(self) -> None:
        self._add_time()
        super()._plan_stretch()
        tiers, steps = self.tiers, self._planned
        if tiers is not None and tiers.loading and steps > 1:
            left_s = tiers.next_s - self._begun_s
            if left_s < self.timer.took_s(steps):
                self._planned = max(1, self.timer.steps_until(left_s, steps))

    def _begin_adapter(self, sequence: Sequence, now_s: float) -> None:
        assert self.adapters is not None
        self._adapters_s += self.adapters.begin(sequence.adapter, now_s)
        self.adapter_loads = self.adapters.loads

    def _add_time(self) -> None:
        if self.adapters is not None:
            self.timer.added_s = self.adapters.step_s + self._adapters_s
            self._adapters_s = 0.0

    # --- the end of requests ------------------------------------------------------------------

    def _count_waiting(self, now_s: float) -> None:
        self.waiting_s += self.queued * (now_s - self._changed_s)
        self._changed_s = now_s

    def _end(self, sequence: Sequence, now_s: float) -> None:
        super()._end(sequence, now_s)
        if self.adapters is not None:
            self.adapters.end(sequence.adapter)

    def _drop(self, sequence: Sequence, extra: int = 0) -> None:
        super()._drop(sequence, extra)
        if self.adapters is not None:
            self.adapters.end(sequence.adapter)

    def _leave(self, now_s: float) -> None:
        for sequence in self._leaving:
            if sequence.state == LOADING:
                assert self.tiers is not None
                self._count_waiting(now_s)
                self.tiers.drop(sequence)
                self.pool.release(sequence, sequence.computed)
                if self.adapters is not None:
                    self.adapters.end(sequence.adapter)
                sequence.state = GONE
        super()._leave(now_s)
