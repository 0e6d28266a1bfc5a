"""Eviction policies on recorded conversations, beside the best prefix cache that could be.

`make bench-cache`, or `python -m benchmarks.cache [--json] [--quick]`. Replays the Mooncake
conversation trace (MILEAGE_DATA_DIR), its halves and synthetic workloads. Exit code: 0 all bars
met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.support.machine import describe
from benchmarks.support.output import Output
from benchmarks.support.verdict import Bar, verdict
from mileage.cli.trace_source import open_trace
from mileage.policy.eviction.choose import EVICTION_POLICIES, EvictionConfig, make_eviction
from mileage.policy.eviction.warmup import WarmupConfig
from mileage.sim.cache_optimum import CacheOptimum
from mileage.sim.cache_replay import replay_cache
from mileage.sim.cache_trace import CacheTrace
from mileage.sim.cache_warmup import Restart, WarmupEffect, warmup_effect
from mileage.workload.synthetic.config import (
    ContentsConfig,
    ConversationsConfig,
    PrefixesConfig,
    SyntheticConfig,
)
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.lengths import LognormalLength
from mileage.workload.trace_request import TraceRequest

__all__ = ["main"]

TRACE = Path("traces", "mooncake_conversation.jsonl.gz")
SIZES = (1, 2, 5, 10, 20, 50)
"""Of the cache, in percent of the trace's different blocks."""
BLOCK_BYTES = 64 * 2**20
"""512 tokens of Llama-3.1-8B in bf16."""
LOAD_BYTES_PER_S = 20e9
BARS = (
    Bar("share_at_1pct", 42),
    Bar("share_at_2pct", 46),
    Bar("share_at_5pct", 57),
    Bar("share_at_10pct", 79),
    Bar("worst_vs_lru_points", 1.0, at_least=False),
    Bar("warmup_ratio", 2.2),
)

Shares = dict[str, dict[int, float]]
"""By policy and size: hits in percent of the optimum's."""


def shares(trace: CacheTrace, policies: Sequence[str]) -> Shares:
    """Every policy at every size of at least one block at which anything can be hit."""
    optimum = CacheOptimum(trace)
    found: Shares = {policy: {} for policy in policies}
    for percent in SIZES:
        blocks_max = trace.blocks * percent // 100
        best = optimum.hits(blocks_max)
        if not best:
            continue
        for policy in policies:
            ranks = make_eviction(EvictionConfig(policy=policy), blocks_max=blocks_max)
            hits = replay_cache(trace, ranks, blocks_max=blocks_max)
            found[policy][percent] = 100 * hits / best
    return found


def behind_lru(found: Shares) -> float:
    """Points by which `return_aware` is behind LRU where it is worst; negative: it never is."""
    ours, lru = found["return_aware"], found["lru"]
    return max(lru[percent] - ours[percent] for percent in ours)


def synthetic(requests: int) -> Iterator[tuple[str, CacheTrace]]:
    """Workloads that the policy's settings were not chosen on."""
    chat = LognormalLength(median=300, sigma=0.8)
    prompts = LognormalLength(median=2000, sigma=0.5)
    workloads = {
        "chat": {"conversations": ConversationsConfig(turns=5, think_s=60)},
        "agents": {"conversations": ConversationsConfig(turns=20, think_s=5)},
        "chat behind system prompts": {
            "conversations": ConversationsConfig(turns=5, think_s=45),
            "prefixes": PrefixesConfig(count=5, tokens=prompts),
        },
        "Zipf prefixes": {"prefixes": PrefixesConfig(count=300, tokens=prompts)},
        "repeated prompts": {"contents": ContentsConfig(count=requests // 2, alpha=0.9)},
    }
    for name, parts in workloads.items():
        config = SyntheticConfig(
            rate_rps=4.0,
            requests=requests,
            seed=1,
            block_tokens=256,
            prompt=chat,
            **parts,  # type: ignore[arg-type]
        )
        yield name, CacheTrace(generate(config), name=name)


def warmed(trace: CacheTrace, at_s: float, load_ratio: float, rate: float | None) -> WarmupEffect:
    """What a warm-up brings after a restart, with a cache of 10 %."""
    blocks_max = trace.blocks // 10
    return warmup_effect(
        trace,
        lambda: make_eviction(EvictionConfig(), blocks_max=blocks_max),
        blocks_max=blocks_max,
        restart=Restart(at_s=at_s, block_bytes=BLOCK_BYTES, bytes_per_s=rate),
        config=WarmupConfig(load_ratio=load_ratio),
    )


def warmup_figures(trace: CacheTrace, output: Output) -> dict[str, object]:
    """Five restarts, after each sixth of the trace, taken together."""
    times_s = [trace.duration_s * sixths / 6 for sixths in range(1, 6)]
    rows = []
    ratios: dict[str, float] = {}
    each: list[float] = []
    for name, load_ratio, rate in (
        ("hottest 25 %, before serving", 0.25, None),
        ("all, before serving", 1.0, None),
        ("all, while serving, 20 GB/s", 1.0, LOAD_BYTES_PER_S),
    ):
        effects = [warmed(trace, at_s, load_ratio, rate) for at_s in times_s]
        references = sum(e.references for e in effects)
        cold, warm = sum(e.cold_hits for e in effects), sum(e.warm_hits for e in effects)
        ratios[name] = warm / cold
        each = each or [round(e.warm_hits / e.cold_hits, 2) for e in effects]
        swing, bulk = (
            max(getattr(e, name) for e in effects) / 1e9
            for name in ("swing_bytes", "bulk_swing_bytes")
        )
        rows.append((name, cold / references, warm / references, ratios[name], swing, bulk))
    columns = ("loaded", "cold", "warm", "ratio", "swing GB", "swing GB in one piece")
    output.table("Hit ratio in the 120 s after five restarts", columns, rows)
    quarter, everything, serving = ratios.values()
    return {
        "warmup_ratio": round(quarter, 3),
        "warmup_ratio_each": each,
        "warmup_ratio_all": round(everything, 3),
        "warmup_ratio_all_while_serving": round(serving, 3),
    }


def half(requests: Sequence[TraceRequest], index: int) -> CacheTrace:
    """The first or the second half of the trace."""
    middle = len(requests) // 2
    return CacheTrace(requests[:middle] if index == 0 else requests[middle:])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="smaller synthetic workloads")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    path = Path(os.environ.get("MILEAGE_DATA_DIR", ".")) / TRACE
    if not path.exists():
        reason = f"{path} is missing: set MILEAGE_DATA_DIR to the directory with {TRACE}"
        return output.finish({}, verdict({}, BARS, invalid=[reason]))
    with open_trace(str(path)) as opened:
        requests = list(opened)
    trace = CacheTrace(requests)
    output.say(f"{len(trace):,} requests, {trace.references:,} blocks")
    started_s = time.process_time()
    found = shares(trace, tuple(EVICTION_POLICIES))
    replay_cpu_s = time.process_time() - started_s
    lru_points = {"Mooncake": behind_lru(found)}
    figures: dict[str, object] = {
        f"share_at_{percent}pct": round(share, 2)
        for percent, share in found["return_aware"].items()
    }
    figures["lru"] = {percent: round(share, 2) for percent, share in found["lru"].items()}
    tables = [("Mooncake", found)]
    for index, name in enumerate(("Mooncake, first half", "Mooncake, second half")):
        tables.append((name, shares(half(requests, index), ("lru", "return_aware"))))
    for name, made in synthetic(1000 if arguments.quick else 3000):
        tables.append((name, shares(made, ("lru", "return_aware"))))
    for name, each in tables:
        lru_points[name] = behind_lru(each)
        rows = [(policy, *(by.get(size) for size in SIZES)) for policy, by in each.items()]
        output.table(f"{name}: hits in % of the optimum", ("", *map("{} %".format, SIZES)), rows)
    figures["worst_vs_lru_points"] = round(max(lru_points.values()), 3)
    figures["vs_lru_points"] = {name: round(value, 2) for name, value in lru_points.items()}
    figures["replay_cpu_s"] = round(replay_cpu_s, 1)
    figures |= warmup_figures(trace, output)
    return output.finish({**figures, "machine": describe()}, verdict(figures, BARS))


if __name__ == "__main__":
    sys.exit(main())
