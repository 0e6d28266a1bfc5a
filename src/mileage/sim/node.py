"""Node: a simulated engine under the name that the controller knows it by."""

from __future__ import annotations

from random import Random

import msgspec

from mileage.core.replica import ReplicaView
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.make_engine import make_engine
from mileage.sim.step_math import busy_of

__all__ = ["Node", "ReplicaSpec", "ReplicaTotals"]


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of the fleet: its engine, how long that engine's steps take, what it serves."""

    name: str
    engine: EngineConfig
    table: StepTable
    models: tuple[str, ...] = ("model",)
    gpus: float = 1.0


class ReplicaTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine did from the start to the end."""

    name: str
    steps: int
    finished: int
    preemptions: int
    prompt_tokens: int
    """Of requests whose first token came."""
    prefill_tokens: int
    """Computed; again after a preemption, and not what was found in the prefix cache."""
    output_tokens: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    busy_s: float
    """Time with a step in progress."""
    running_s: float
    """Integral over time of the requests that run."""
    waiting_s: float
    """Integral over time of the requests that wait in the engine."""
    kv_blocks: int
    kv_blocks_peak: int
    load_tokens: int = 0
    """Found in the memory behind the GPU's, and loaded instead of computed."""
    adapter_loads: int = 0
    """Times that a LoRA adapter was brought to the GPU."""


class Node:
    """An engine, and what was last told of it."""

    __slots__ = (
        "_busy_s",
        "_seen_s",
        "_token_s",
        "_tokens",
        "engine",
        "index",
        "name",
        "start_ticket",
        "ticket",
    )

    def __init__(self, spec: ReplicaSpec, index: int, random: Random) -> None:
        self.name, self.index = spec.name, index
        self.engine = make_engine(spec.engine, spec.table, random)
        self.ticket = self.start_ticket = -1
        """Of the event that is due for it, and of the end of its start; others are outdated."""
        most = spec.engine.step_tokens_max
        self._token_s = spec.table.step_s(0, 0, most) / most
        self._seen_s = self._busy_s = 0.0
        self._tokens = 0

    def busy_s(self, now_s: float) -> float:
        """Seconds with a step in progress so far."""
        return self.engine.busy_s + self.engine.step_age_s(now_s)

    def busy_ratio(self, now_s: float) -> float:
        """Share of the time since the last view in which a step was in progress; ask before it."""
        passed_s = now_s - self._seen_s
        return (self.busy_s(now_s) - self._busy_s) / passed_s if passed_s > 0.0 else 0.0

    def observe(self, now_s: float) -> ReplicaView:
        """What a scrape tells now.

        `compute_busy_ratio` is the share of time with steps in progress, times how full these were:
        the tokens computed since the last view over those that steps with as many tokens as the
        engine may have would have computed in that time. An engine's own counters move at the end
        of each step; prompts' tokens are counted with their last chunk's step.
        """
        engine = self.engine
        config, pool, decoding = engine.config, engine.pool, engine.batch.count
        decoded = engine.steps_done(now_s) * decoding
        tokens = engine.prefill_tokens + engine.decode_tokens + decoded
        passed_s = now_s - self._seen_s
        busy = None
        if passed_s > 0.0:
            busy = busy_of(tokens - self._tokens, self._token_s, passed_s)
        self._seen_s, self._tokens, self._busy_s = now_s, tokens, self.busy_s(now_s)
        caching = config.prefix_cache
        return ReplicaView(
            replica=self.name,
            observed_s=now_s,
            running=len(engine.running),
            waiting=engine.queued,
            running_max=config.running_max,
            kv_cache_usage_ratio=engine.blocks_used(now_s) / pool.blocks,
            kv_tokens_max=pool.blocks * config.block_tokens,
            prefix_cache_hit_tokens_total=float(pool.hit_tokens) if caching else None,
            prefix_cache_query_tokens_total=float(pool.query_tokens) if caching else None,
            preemptions_total=float(engine.preemptions),
            prompt_tokens_total=float(engine.prompt_tokens),
            output_tokens_total=float(engine.output_tokens + decoded),
            compute_busy_ratio=busy,
        )

    def totals(self) -> ReplicaTotals:
        """All that it did."""
        engine, pool = self.engine, self.engine.pool
        return ReplicaTotals(
            name=self.name,
            steps=engine.batch.steps,
            finished=engine.finished,
            preemptions=engine.preemptions,
            prompt_tokens=engine.prompt_tokens,
            prefill_tokens=engine.prefill_tokens,
            output_tokens=engine.output_tokens,
            prefix_query_tokens=pool.query_tokens,
            prefix_hit_tokens=pool.hit_tokens,
            busy_s=engine.busy_s,
            running_s=engine.running_s,
            waiting_s=engine.waiting_s,
            kv_blocks=pool.blocks,
            kv_blocks_peak=pool.blocks - pool.free_min,
            load_tokens=engine.load_tokens,
            adapter_loads=engine.adapter_loads,
        )
