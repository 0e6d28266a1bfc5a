"""Node: a simulated engine under the name that the controller knows it by."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec

from mileage.core.replica import ReplicaView
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.make_engine import make_engine
from mileage.sim.shared_gpu import SharedGpu
from mileage.sim.step_log import Watcher
from mileage.sim.step_math import busy_of

__all__ = ["Node", "ReplicaSpec", "ReplicaTotals"]


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of the fleet: its engine, how long that engine's steps take, what it serves."""

    name: str
    engine: EngineConfig
    table: StepTable
    models: tuple[str, ...] = ("model",)
    gpus: float = 1.0
    shared_gpu: str | None = None
    """Name of the GPU that it shares with the other replicas that have this name here; None: it has
    its GPUs for itself. Of a shared one `gpus` is the replica's part, for the costs."""
    shared_capacity_ratio: float = 1.0
    """What all that compute on the shared GPU get together, over what one gets alone: 1 with time
    slices, above with MPS."""


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
        "shared",
        "start_ticket",
        "ticket",
    )

    def __init__(self, spec: ReplicaSpec, index: int, random: Random) -> None:
        self.name, self.index = spec.name, index
        self.engine = make_engine(spec.engine, spec.table, random)
        self.ticket = self.start_ticket = -1
        """Of the event that is due for it, and of the end of its start; others are outdated."""
        self.shared: SharedGpu | None = None
        most = spec.engine.step_tokens_max
        self._token_s = spec.table.step_s(0, 0, most) / most
        self._seen_s = self._busy_s = 0.0
        self._tokens = 0

    def watch(self, watcher: Watcher) -> None:
        """Tell it of all steps from now on."""
        members = self.engine.members
        for number, member in enumerate(members):
            name = self.name if len(members) == 1 else f"{self.name}/{number}"
            member.on_stretch = partial(watcher.stepped, name)

    def busy_s(self, now_s: float) -> float:
        """Seconds with a step in progress so far; of several engines the mean."""
        members = self.engine.members
        return sum(each.busy_s + each.step_age_s(now_s) for each in members) / len(members)

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
        config, members = self.engine.config, self.engine.members
        decoded = sum(each.steps_done(now_s) * each.batch.count for each in members)
        tokens = decoded + sum(each.prefill_tokens + each.decode_tokens for each in members)
        blocks = sum(each.pool.blocks for each in members)
        passed_s = now_s - self._seen_s
        busy = None
        if passed_s > 0.0:
            busy = busy_of(tokens - self._tokens, self._token_s, passed_s)
        self._seen_s, self._tokens, self._busy_s = now_s, tokens, self.busy_s(now_s)
        caching = config.prefix_cache
        hits = float(sum(each.pool.hit_tokens for each in members))
        queries = float(sum(each.pool.query_tokens for each in members))
        return ReplicaView(
            replica=self.name,
            observed_s=now_s,
            running=sum(len(each.running) for each in members),
            waiting=sum(each.queued for each in members),
            running_max=config.running_max,
            kv_cache_usage_ratio=sum(each.blocks_used(now_s) for each in members) / blocks,
            kv_tokens_max=blocks * members[0].config.block_tokens,
            prefix_cache_hit_tokens_total=hits if caching else None,
            prefix_cache_query_tokens_total=queries if caching else None,
            preemptions_total=float(sum(each.preemptions for each in members)),
            prompt_tokens_total=float(sum(each.prompt_tokens for each in members)),
            output_tokens_total=float(decoded + sum(e.output_tokens for e in members)),
            compute_busy_ratio=busy,
        )

    def totals(self) -> ReplicaTotals:
        """All that it did."""
        members = self.engine.members
        pools = [each.pool for each in members]
        return ReplicaTotals(
            name=self.name,
            steps=sum(each.batch.steps for each in members),
            finished=sum(each.finished for each in members),
            preemptions=sum(each.preemptions for each in members),
            prompt_tokens=sum(each.prompt_tokens for each in members),
            prefill_tokens=sum(each.prefill_tokens for each in members),
            output_tokens=sum(each.output_tokens for each in members),
            prefix_query_tokens=sum(pool.query_tokens for pool in pools),
            prefix_hit_tokens=sum(pool.hit_tokens for pool in pools),
            busy_s=sum(each.busy_s for each in members) / len(members),
            running_s=sum(each.running_s for each in members),
            waiting_s=sum(each.waiting_s for each in members),
            kv_blocks=sum(pool.blocks for pool in pools),
            kv_blocks_peak=sum(pool.blocks - pool.free_min for pool in pools),
            load_tokens=sum(each.load_tokens for each in members),
            adapter_loads=sum(each.adapter_loads for each in members),
        )
