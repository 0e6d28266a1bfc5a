"""DisaggregatedEngine: prompts are computed by some engines, and answers decoded by others."""

from __future__ import annotations

import heapq
import math
from collections import deque
from random import Random

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_group import EngineGroup, least_busy
from mileage.sim.sequence import GONE, NEW, Sequence
from mileage.sim.serving_engine import ServingEngine

__all__ = ["DisaggregatedEngine"]


class _PrefillEngine(ServingEngine):
    """Computes prompts; what is to go on decoding is handed over, and keeps its blocks until its
    cache is copied."""

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        super().__init__(config, table, random)
        self.handed: list[Sequence] = []

    def _produce(self, sequence: Sequence, now_s: float) -> None:
        if sequence.output_tokens <= 1:
            super()._produce(sequence, now_s)
            return
        del self._prefilling[sequence], self.running[sequence]
        if self.adapters is not None:
            self.adapters.end(sequence.adapter)
        self.prompt_tokens += sequence.prompt_tokens
        self.output_tokens += 1
        sequence.produced = 1
        sequence.state = NEW  # for the next one
        self.handed.append(sequence)

    def _leave(self, now_s: float) -> None:
        for sequence in self._leaving:
            if sequence.state == NEW:
                sequence.state = GONE  # its cache is copied for nothing
        super()._leave(now_s)

    def let_go(self, sequence: Sequence, now_s: float) -> None:
        """Its cache is copied."""
        self.pool.release(sequence, sequence.computed)
        if not self._planned and self.waiting:
            self._begun_s = self.due_s = now_s


class _DecodeEngine(ServingEngine):
    """Decodes what comes with its cache; what gives way computes everything anew here."""

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        super().__init__(config, table, random)
        self._came: deque[Sequence] = deque()

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return super().queued + len(self._came)

    def receive(self, sequence: Sequence, now_s: float) -> None:
        """A sequence comes with the cache of its prompt, and its first token."""
        self._count_waiting(now_s)
        self._came.append(sequence)
        if not self._planned and self.due_s > now_s:
            self._begun_s = self.due_s = now_s
        else:
            self._cut(now_s)

    def abort(self, sequence: Sequence, now_s: float) -> bool:
        """The request's client has left. True: `due_s` has changed."""
        if sequence.state != NEW:
            return super().abort(sequence, now_s)
        self._count_waiting(now_s)
        self._came.remove(sequence)
        sequence.state = GONE
        return self._cut(now_s)

    def begin(self, now_s: float) -> None:
        """Plan the next steps; `due_s` tells when they are over."""
        came, adapters = self._came, self.adapters
        self.pool.now_s = now_s
        # What gave way goes first.
        while came and not self.waiting and self._runs_or_loads < self.config.running_max:
            if adapters is not None and not adapters.admits(came[0].adapter):
                break
            if not self._take(came[0], now_s):
                break
        super().begin(now_s)

    def _take(self, sequence: Sequence, now_s: float) -> bool:
        pool = self.pool
        counts = pool.query_tokens, pool.hit_tokens  # its prompt is asked for once
        found = pool.found(sequence)
        spare = self._watermark if self.running else 0
        if not pool.admits(sequence, found, sequence.target + 1, spare):
            return False
        self._count_waiting(now_s)
        self._came.popleft()
        pool.start(sequence, found)
        pool.grow(sequence, sequence.target)
        pool.query_tokens, pool.hit_tokens = counts
        sequence.computed = sequence.target
        sequence.delay_s = now_s - sequence.first_token_s
        self.running[sequence] = None
        if self.adapters is not None:
            self._begin_adapter(sequence, now_s)
        self.batch.join(sequence)
        return True


class DisaggregatedEngine(EngineGroup):
    """A request goes to the prefill engine with the fewest requests; when its prompt is computed,
    to the decode engine with the fewest. With its cache goes its first token: the client has it
    when that has arrived. Transfers do not disturb steps, nor each other.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        settings = config.disaggregation
        assert settings is not None
        self._prefill = [
            _PrefillEngine(config, table, random) for _ in range(settings.prefill_engines)
        ]
        self._decode = [
            _DecodeEngine(config, table, random) for _ in range(settings.decode_engines)
        ]
        super().__init__(config, [*self._prefill, *self._decode])
        self._token_s, self._latency_s = settings.transfer_token_s, settings.transfer_latency_s
        self._moves: list[tuple[float, int, Sequence, _PrefillEngine]] = []
        self._moved = 0
        self._stepped: list[ServingEngine] = []

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """A request comes that `fits`. True: `due_s` has changed."""
        place = self._places[sequence] = least_busy(self._prefill)
        place.add(sequence, now_s)
        return self._look()

    def abort(self, sequence: Sequence, now_s: float) -> bool:
        """The request's client has left. True: `due_s` has changed."""
        place = self._places.pop(sequence, None)
        if place is not None:
            place.abort(sequence, now_s)
        elif sequence.state == NEW:
            sequence.state = GONE  # on its way
        return self._look()

    def _look(self) -> bool:
        due_s = min(member.due_s for member in self.members)
        if self._moves:
            due_s = min(due_s, self._moves[0][0])
        changed, self.due_s = due_s != self.due_s, due_s
        return changed and due_s < math.inf

    def finish_steps(self, now_s: float) -> None:
        """Steps in progress are over, or a cache has arrived: call it at `due_s`."""
        self.first, self.done = [], []
        while self._moves and self._moves[0][0] <= now_s:
            _, _, sequence, source = heapq.heappop(self._moves)
            source.let_go(sequence, now_s)
            if sequence.state == GONE:
                continue
            sequence.first_token_s = now_s
            self.first.append(sequence)
            place = self._places[sequence] = least_busy(self._decode)
            assert isinstance(place, _DecodeEngine)
            place.receive(sequence, now_s)
        self._stepped = [m for m in (*self._prefill, *self._decode) if m.due_s <= now_s]
        for member in self._stepped:
            self._finish(member, now_s)
        for source in self._prefill:
            for sequence in source.handed:
                self._places.pop(sequence, None)
                ready_s = now_s + self._latency_s + self._token_s * sequence.computed
                self._moved += 1
                heapq.heappush(self._moves, (ready_s, self._moved, sequence, source))
            source.handed.clear()

    def begin(self, now_s: float) -> None:
        """Plan the next steps; `due_s` tells when they are over."""
        for member in self._stepped:
            member.begin(now_s)
        self._look()
