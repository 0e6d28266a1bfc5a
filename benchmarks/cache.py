"""Eviction policies on recorded conversations, beside the best prefix cache that could be.

`make bench-cache`, or `python -m benchmarks.cache [--json] [--quick]`. Replays the Mooncake
conversation trace (MILEAGE_DATA_DIR), its halves and synthetic workloads, with hints of the
callers, and through restarts with a warm-up. Exit code: 0 all bars met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.support.cache_hinted import HINTED_SIZES, hint_figures, hinted_shares
from benchmarks.support.cache_restarts import ARMS, QUARTER, pooled, restarted
from benchmarks.support.cache_shares import SIZES, Shares, shares
from benchmarks.support.machine import describe
from benchmarks.support.output import Output
from benchmarks.support.verdict import Bar, verdict
from mileage.cli.trace_source import open_trace
from mileage.policy.eviction.choose import EVICTION_POLICIES
from mileage.sim.cache_trace import CacheTrace
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
BARS = (
    Bar("share_at_1pct", 42),
    Bar("share_at_2pct", 46),
    Bar("share_at_5pct", 57),
    Bar("share_at_10pct", 79),
    Bar("worst_vs_lru_points", 1.0, at_least=False),
    Bar("warmup_ratio", 2.2),
    Bar("hints_cost_points", 1.0, at_least=False),
)


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


def warmup_figures(trace: CacheTrace, output: Output) -> dict[str, object]:
    """Every way to warm up, over all restarts."""
    found = {name: pooled(restarted(trace, warming)) for name, warming in ARMS.items()}
    rows = [
        (
            name,
            arm.cold_ratio,
            arm.warm_ratio,
            arm.ratio,
            "{:.2f}-{:.2f}".format(*arm.interval),
            arm.swing_bytes / 1e9,
            arm.growth_bytes / 1e9,
        )
        for name, arm in found.items()
    ]
    columns = ("loaded", "cold", "warm", "ratio", "95 %", "in flight GB", "step GB")
    quarter = found[QUARTER]
    count = len(quarter.each)
    output.table(f"Hit ratio in the 120 s after a restart, {count} restarts", columns, rows)
    return {
        "warmup_ratio": round(quarter.ratio, 3),
        "warmup_ratio_interval": [round(end, 2) for end in quarter.interval],
        "warmup_ratio_each": [round(ratio, 2) for ratio in quarter.each],
        "warmup": {
            name: {
                "ratio": round(arm.ratio, 3),
                "warm_hit_ratio": round(arm.warm_ratio, 4),
                "in_flight_bytes": arm.swing_bytes,
                "step_bytes": arm.growth_bytes,
            }
            for name, arm in found.items()
        },
        "cold_hit_ratio": round(quarter.cold_ratio, 4),
    }


def half(requests: Sequence[TraceRequest], index: int) -> CacheTrace:
    """The first or the second half of the trace."""
    middle = len(requests) // 2
    return CacheTrace(requests[:middle] if index == 0 else requests[middle:])


def table(output: Output, name: str, found: Shares, sizes: Sequence[int]) -> None:
    """Shares of the optimum, one policy a row."""
    rows = [(policy, *(by.get(size) for size in sizes)) for policy, by in found.items()]
    output.table(f"{name}: hits in % of the optimum", ("", *map("{} %".format, sizes)), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument(
        "--quick", action="store_true", help="smaller synthetic workloads, fewer sizes"
    )
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
        table(output, name, each, SIZES)
    figures["worst_vs_lru_points"] = round(max(lru_points.values()), 3)
    figures["vs_lru_points"] = {name: round(value, 2) for name, value in lru_points.items()}
    figures["replay_cpu_s"] = round(replay_cpu_s, 1)
    sizes = HINTED_SIZES[-2:] if arguments.quick else HINTED_SIZES
    hinted = hinted_shares(trace, found["return_aware"], sizes)
    table(output, "Mooncake with hints", hinted, sizes)
    figures |= hint_figures(hinted)
    figures |= warmup_figures(trace, output)
    return output.finish({**figures, "machine": describe()}, verdict(figures, BARS))


if __name__ == "__main__":
    sys.exit(main())
