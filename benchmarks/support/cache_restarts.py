"""Restarts of a cache in the middle of a trace: what a warm-up brings, and how memory swings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.support.statistics import quantile
from mileage.policy.eviction.choose import EvictionConfig, make_eviction
from mileage.policy.eviction.warmup import WarmupConfig
from mileage.sim.cache_hints import HintQuality, made_hints
from mileage.sim.cache_trace import CacheTrace
from mileage.sim.cache_warmup import Restart, WarmupEffect, warmup_effect

__all__ = ["ARMS", "QUARTER", "Pooled", "Warming", "pooled", "restarted"]

BLOCK_BYTES = 64 * 2**20
"""512 tokens of Llama-3.1-8B in bf16."""
LOAD_BYTES_PER_S = 20e9
PERIOD_S = 300
_RESAMPLES = 2000
_SEED = 1
_ONE_PIECE = {"chunk_bytes": 1 << 50, "concurrency": 1}


@dataclass(frozen=True, slots=True)
class Warming:
    """One way to warm up: what is loaded, and how much of it before serving goes on."""

    config: WarmupConfig
    ready_ratio: float = 1.0
    policy: str = "return_aware"
    hints: HintQuality | None = None


QUARTER = "hottest 25 %, before serving"
ARMS = {
    QUARTER: Warming(WarmupConfig(load_ratio=0.25)),
    "the same, cache and heat by LRU": Warming(WarmupConfig(load_ratio=0.25), policy="lru"),
    "the same, with hints 80 % right": Warming(
        WarmupConfig(load_ratio=0.25), hints=HintQuality(right_ratio=0.8)
    ),
    "latest 25 %, before serving": Warming(WarmupConfig(load_ratio=0.25, hot_ratio=0.0)),
    "all, before serving": Warming(WarmupConfig()),
    "hottest 25 % before, rest while serving": Warming(WarmupConfig(), ready_ratio=0.25),
    "all, while serving": Warming(WarmupConfig(), ready_ratio=0.0),
    "all, while serving, in one piece": Warming(WarmupConfig(**_ONE_PIECE), ready_ratio=0.0),
}


@dataclass(frozen=True, slots=True)
class Pooled:
    """Several restarts taken together. The interval is that of 95 % of resamples of them."""

    cold_ratio: float
    warm_ratio: float
    ratio: float
    interval: tuple[float, float]
    each: tuple[float, ...]
    swing_bytes: int
    growth_bytes: int


def restarted(trace: CacheTrace, warming: Warming) -> list[WarmupEffect]:
    """A restart each five minutes, with a cache of 10 % of the blocks."""
    blocks_max = trace.blocks // 10
    config = EvictionConfig(policy=warming.policy)
    if warming.hints is not None:
        trace = trace.with_hints(made_hints(trace, warming.hints, random.Random(_SEED)))
    last = int((trace.duration_s - 120) // PERIOD_S)
    return [
        warmup_effect(
            trace,
            lambda: make_eviction(config, blocks_max=blocks_max),
            blocks_max=blocks_max,
            restart=Restart(
                at_s=number * PERIOD_S,
                block_bytes=BLOCK_BYTES,
                bytes_per_s=LOAD_BYTES_PER_S,
                ready_ratio=warming.ready_ratio,
            ),
            config=warming.config,
        )
        for number in range(1, last + 1)
    ]


def pooled(effects: Sequence[WarmupEffect]) -> Pooled:
    """Hits are added up before they are divided: a restart with few counts little."""
    references = sum(e.references for e in effects)
    rng = random.Random(_SEED)
    resampled = sorted(_ratio(rng.choices(effects, k=len(effects))) for _ in range(_RESAMPLES))
    return Pooled(
        cold_ratio=sum(e.cold_hits for e in effects) / references,
        warm_ratio=sum(e.warm_hits for e in effects) / references,
        ratio=_ratio(effects),
        interval=(quantile(resampled, 0.025), quantile(resampled, 0.975)),
        each=tuple(_ratio([e]) for e in effects),
        swing_bytes=max(e.swing_bytes for e in effects),
        growth_bytes=max(e.growth_bytes for e in effects),
    )


def _ratio(effects: Sequence[WarmupEffect]) -> float:
    return sum(e.warm_hits for e in effects) / sum(e.cold_hits for e in effects)
