"""A naive engine: one loop per step, one look at each request and each block. No closed forms.

Written apart from `mileage.sim`, by the same rules; slow on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig

__all__ = ["Job", "ReferenceEngine"]


@dataclass(eq=False)
class Block:
    key: tuple[str, Hashable, int] | None = None
    """What is in it: a part of a unit of known content, or of an answer."""
    users: int = 0


@dataclass(eq=False)
class Job:
    """A request, and what became of it."""

    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    keys: tuple[Hashable, ...] = ()
    unit_tokens: int = 0
    blocks: list[Block] = field(default_factory=list)
    computed: int = 0
    target: int = 0
    registered: int = 0
    times_s: list[float] = field(default_factory=list)
    cached_tokens: int | None = None
    preemptions: int = 0
    decoding: bool = False
    """All but its last token is computed, once and for all until it is preempted."""
    chunk: int = 0
    joined: int = 0
    """Which of the decoding ones it is, in the order of their first decode."""
    finished_s: float = math.nan

    @property
    def done(self) -> bool:
        return self.finished_s == self.finished_s

    @property
    def ttft_s(self) -> float:
        first_s = self.times_s[0] if self.times_s else self.finished_s
        return first_s - self.arrived_s

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in pairwise(self.times_s)]

    @property
    def itl_p99_s(self) -> float:
        gaps = sorted(self.gaps_s)
        return gaps[math.ceil(0.99 * len(gaps) * (1 - 1e-12)) - 1] if gaps else math.nan


class ReferenceEngine:
    """Runs jobs (sorted by arrival) to their end."""

    def __init__(self, config: EngineConfig, table: StepTable) -> None:
        self.config, self.table = config, table
        self.free = [Block() for _ in range(config.kv_blocks)]
        """In the order of being taken."""
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.preempted = False
        self.named = False
        self.busy_s = 0.0
        self.steps = self.order = 0

    def run(self, jobs: Sequence[Job]) -> None:
        coming = list(jobs)
        now_s = 0.0
        while coming or self.waiting or self.running:
            if not (self.waiting or self.running):
                now_s = max(now_s, coming[0].arrived_s)
            while coming and coming[0].arrived_s <= now_s:
                job = coming.pop(0)
                job.target = job.prompt_tokens
                self.waiting.append(job)
            now_s += self.step(now_s)
            self.finish(now_s)

    def step(self, now_s: float) -> float:
        config = self.config
        self.preempted = False
        alone = len(self.running) + len(self.waiting) <= 1
        most = config.long_prefill_tokens_max
        if most is None or alone:
            most = 1 << 60
        for job in list(self.running):
            if job in self.running and job.decoding:
                self.allocate(job, job.computed + 1)
                job.chunk = 1 if job in self.running else 0
        for job in list(self.running):
            if job in self.running and not job.decoding:
                budget = config.step_tokens_max - sum(each.chunk for each in self.running)
                if budget <= 0:
                    break
                chunk = min(job.target - job.computed, most, budget)
                self.allocate(job, job.computed + chunk)
                if job in self.running:
                    job.chunk = chunk
                    self.register(job)
        if not self.preempted:
            self.admit(most)
        active = [job for job in self.running if job.chunk]
        assert active, "nothing to do"
        decodes = [job for job in active if job.decoding]
        prefills = [job for job in active if not job.decoding]
        time_s = self.table.step_s(
            len(decodes),
            sum(job.computed for job in decodes),
            sum(job.chunk for job in prefills),
            sum(j.chunk * j.computed + j.chunk * (j.chunk + 1) / 2 for j in prefills),
        )
        self.busy_s += time_s
        self.steps += 1
        assert len(self.free) == len({id(block) for block in self.free})
        return time_s

    def admit(self, most: int) -> None:
        config = self.config
        while self.waiting and len(self.running) < config.running_max:
            budget = config.step_tokens_max - sum(job.chunk for job in self.running)
            if budget <= 0:
                return
            job = self.waiting[0]
            hits = self.hits(job)
            known = len(hits) * config.block_tokens
            chunk = min(job.target - known, most, budget)
            tokens = job.target if config.whole_prompt_fits else known + chunk
            spare = int(config.watermark_ratio * config.kv_blocks) if self.running else 0
            needed = -(-tokens // config.block_tokens) - len(hits)
            needed += sum(block.users == 0 for block in hits)
            if needed + spare > len(self.free):
                return
            self.waiting.pop(0)
            self.running.append(job)
            for block in hits:
                if block.users == 0:
                    self.free.remove(block)
                block.users += 1
            job.blocks, job.computed = list(hits), known
            job.registered = known // job.unit_tokens if known else 0
            if job.cached_tokens is None:
                job.cached_tokens = known
            self.allocate(job, known + chunk)
            job.chunk = chunk
            self.register(job)

    def hits(self, job: Job) -> list[Block]:
        """The blocks of the longest known prefix, at most all but the last token."""
        if not self.config.prefix_cache or not job.keys:
            return []
        found: list[Block] = []
        for index, key in enumerate(job.keys):
            if (index + 1) * job.unit_tokens > job.target - 1:
                break
            blocks = self.known.get(key)
            if blocks is None:
                break
            found += blocks
        return found

    @property
    def known(self) -> dict[Hashable, list[Block]]:
        held = [block for job in self.running for block in job.blocks]
        found: dict[Hashable, dict[int, Block]] = {}
        for block in [*held, *self.free]:
            if block.key is not None and block.key[0] == "unit":
                found.setdefault(block.key[1], {})[block.key[2]] = block
        return {key: [parts[i] for i in sorted(parts)] for key, parts in found.items()}

    def register(self, job: Job) -> None:
        """The full units that this chunk completes can be found from now on."""
        if not self.config.prefix_cache:
            return
        tokens = job.computed + job.chunk
        while job.registered < len(job.keys) and (job.registered + 1) * job.unit_tokens <= tokens:
            key = job.keys[job.registered]
            size = job.unit_tokens // self.config.block_tokens
            if key not in self.known:
                self.named = True
                for i in range(size):
                    job.blocks[job.registered * size + i].key = ("unit", key, i)
            job.registered += 1

    def allocate(self, job: Job, tokens: int) -> None:
        """All blocks or none; the last to have begun gives way, perhaps the job itself."""
        needed = -(-tokens // self.config.block_tokens) - len(job.blocks)
        while needed > len(self.free):
            victim = self.running.pop()
            self.release(victim)
            victim.target = victim.prompt_tokens + len(victim.times_s)
            victim.computed = victim.chunk = 0
            victim.preemptions += 1
            victim.decoding = False
            self.preempted = True
            self.waiting.insert(0, victim)
            if victim is job:
                return
        for _ in range(needed):
            block = self.free.pop(0)
            if block.key is not None and block.key[0] == "unit":
                # A unit that lost a block is lost: its others are empty too.
                others = [b for b in self.free if b.key is not None and b.key[:2] == block.key[:2]]
                for other in others:
                    self.free.remove(other)
                    other.key = None
                self.free[:0] = others
            block.key, block.users = None, 1
            job.blocks.append(block)

    def release(self, job: Job) -> None:
        """From the tail to the head; empty ones are taken first, and those with a name last."""
        whole = job.computed // self.config.block_tokens
        named: list[Block] = []
        anonymous: list[Block] = []
        empty: list[Block] = []
        for index, block in reversed(list(enumerate(job.blocks))):
            block.users -= 1
            if block.users:
                continue
            if block.key is not None:
                named.append(block)
            elif index < whole and self.config.prefix_cache and self.named:
                anonymous.append(block)
            else:
                empty.append(block)
        for block in anonymous:
            block.key = ("answer", id(job), 0)
        self.free[:0] = empty
        self.free += anonymous + named
        job.blocks = []

    def finish(self, now_s: float) -> None:
        """Tokens come out: decodes that are complete first, then prompts, as they began."""
        active = [job for job in self.running if job.chunk]
        decodes = [job for job in active if job.decoding]
        for job in decodes:
            job.computed += 1
            job.times_s.append(now_s)
        ended = [job for job in decodes if len(job.times_s) == job.output_tokens]
        ended.sort(key=lambda job: job.joined)
        for job in ended:
            self.end(job, now_s)
        for job in active:
            if job in decodes:
                continue
            job.computed += job.chunk
            if job.computed == job.target:
                if job.output_tokens:
                    job.times_s.append(now_s)
                if len(job.times_s) >= job.output_tokens:
                    self.end(job, now_s)
                else:
                    self.order += 1
                    job.decoding = True
                    job.joined = self.order
        for job in self.running:
            job.chunk = 0

    def end(self, job: Job, now_s: float) -> None:
        self.running.remove(job)
        self.release(job)
        job.finished_s = now_s
