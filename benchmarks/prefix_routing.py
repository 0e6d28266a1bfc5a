"""Prefix-aware routing on recorded conversations: what two replicas' caches hit, and their balance.

`make bench-prefix-routing`, or `python -m benchmarks.prefix_routing [--json] [--quick]`. Replays
the Mooncake conversation trace (MILEAGE_DATA_DIR) through two simulated replicas, routed in turn,
by affinity and by prefixes, and counts what a directory of blocks saves where some become invalid.
Exit code: 0 all bars met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from msgspec import to_builtins
from msgspec.structs import replace

from benchmarks.support.machine import describe
from benchmarks.support.output import Output
from benchmarks.support.policy_cells import data_directory, windows_of
from benchmarks.support.verdict import Bar, verdict
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.measure.quantiles import quantile
from mileage.policy.routing import RoutingConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.invalidation import InvalidationTotals, invalidations
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import Simulation
from mileage.workload.trace_request import TraceRequest

__all__ = ["main"]

REPLICAS = 2
RUNNING_MAX = 256
STEP_TOKENS_MAX = 8192
RATES_RPS = (2.4, 3.4)
"""A lighter load, and the trace's own."""
ARMS = {
    "round_robin": RoutingConfig(policy="round_robin"),
    "two_choices": RoutingConfig(affinity=False),
    "affinity": RoutingConfig(),
    "pure_affinity": RoutingConfig(affinity_slack_s=1e6),
    "prefix": RoutingConfig(policy="prefix"),
}
BARS = (
    Bar("hit_vs_round_robin", 1.3),
    Bar("hit_vs_pure_affinity", 1.3),
    Bar("share_of_pooled_lru", 0.85),
    Bar("load_max_over_mean", 1.3, at_least=False),
    Bar("invalidation_messages_ratio", 0.5, at_least=False),
)
FLEET = 8
"""Replicas that invalidations are counted among."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one arm did at one rate."""

    hit_ratio: float
    """Prompt tokens found in a cache, over all."""
    work_ratio: float
    """Tokens that the replica with the most of them computed, over the mean."""
    requests_ratio: float
    ttft_p50_s: float
    ttft_p99_s: float


def fleet() -> list[ReplicaSpec]:
    """Llama-3.1-70B in FP8 on eight H200 each: a cache of 3 million tokens."""
    deployment = Deployment(
        model=architecture("llama-3.1-70b"), gpu=gpu("h200"), tensor_parallel=8, weights="fp8"
    )
    engine = EngineConfig(
        kv_blocks=deployment.kv_blocks(16, STEP_TOKENS_MAX, RUNNING_MAX),
        running_max=RUNNING_MAX,
        step_tokens_max=STEP_TOKENS_MAX,
    )
    table = deployment.step_table(RUNNING_MAX, STEP_TOKENS_MAX + RUNNING_MAX)
    names = [f"replica-{number}" for number in range(REPLICAS)]
    return [ReplicaSpec(name=name, engine=engine, table=table) for name in names]


def run(requests: Sequence[TraceRequest], routing: RoutingConfig) -> Found:
    """The requests through the fleet, routed so; no request waits outside of the engines."""
    control = ControlConfig(governor=GovernorConfig(mode="off"), routing=routing)
    result = Simulation(fleet(), control=control).run(requests)
    replicas = result.replicas
    hits = sum(each.prefix_hit_tokens for each in replicas)
    queries = sum(each.prefix_query_tokens for each in replicas)
    first = sorted(each for each in result.outcomes.ttft_s if not math.isnan(each))
    return Found(
        hit_ratio=hits / queries,
        work_ratio=_max_over_mean([each.prefill_tokens + each.output_tokens for each in replicas]),
        requests_ratio=_max_over_mean([each.finished for each in replicas]),
        ttft_p50_s=quantile(first, 0.5) or 0.0,
        ttft_p99_s=quantile(first, 0.99) or 0.0,
    )


def _max_over_mean(values: Sequence[int]) -> float:
    return max(values) * len(values) / sum(values)


def pooled_lru(requests: Sequence[TraceRequest]) -> float:
    """The hit ratio of one LRU cache with the room of all replicas, that serves one by one: what
    no way of routing can do better than, without another eviction."""
    spec = fleet()[0]
    room = REPLICAS * spec.engine.kv_blocks * spec.engine.block_tokens
    held: dict[int, None] = {}
    hits = total = 0
    for request in requests:
        tokens = request.block_tokens
        blocks = request.prefix_blocks[: request.prompt_tokens // tokens] if tokens else ()
        total += request.prompt_tokens
        hits += tokens * next((i for i, b in enumerate(blocks) if b not in held), len(blocks))
        for block in reversed(blocks):
            held.pop(block, None)
            held[block] = None
        while held and len(held) * tokens > room:
            del held[next(iter(held))]
    return hits / total


def told(requests: Sequence[TraceRequest], *, by_prefix: bool) -> InvalidationTotals:
    """What is sent in a larger fleet when prompts become invalid, one after each 20 requests."""
    engine = fleet()[0].engine
    return invalidations(
        requests,
        replicas=FLEET,
        blocks_max=engine.kv_blocks * engine.block_tokens // 512,
        every=20,
        by_prefix=by_prefix,
        random=Random(1),
    )


def invalidation_figures(requests: Sequence[TraceRequest], output: Output) -> dict[str, object]:
    """Messages and bytes to holders over those of a broadcast."""
    found = {
        name: told(requests, by_prefix=by_prefix)
        for name, by_prefix in (("prefix", True), ("round_robin", False))
    }
    rows = [(name, *(getattr(t, key) for key in t.__struct_fields__)) for name, t in found.items()]
    columns = ("", *InvalidationTotals.__struct_fields__)
    output.table(f"Invalidations among {FLEET} replicas", columns, rows)
    figures: dict[str, object] = {
        "invalidation": {name: to_builtins(each) for name, each in found.items()}
    }
    for name, each in found.items():
        suffix = "" if name == "prefix" else f"_{name}"
        messages = each.holder_messages / each.broadcast_messages
        figures[f"invalidation_messages_ratio{suffix}"] = round(messages, 3)
        size = each.holder_bytes / each.broadcast_bytes
        figures[f"invalidation_bytes_ratio{suffix}"] = round(size, 3)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix_routing")
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="a part of the trace, one rate")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    if data_directory() is None:
        reason = "MILEAGE_DATA_DIR is not set: the trace is read from there"
        return output.finish({}, verdict({}, BARS, invalid=[reason]))
    count = 2000 if arguments.quick else 100_000
    (window,) = windows_of("mooncake", (0.25,), count)  # settings were chosen on what is before it
    best = pooled_lru(window)
    figures: dict[str, object] = {"requests": len(window), "pooled_lru_hit_ratio": round(best, 4)}
    worst: dict[str, float] = {"hit_vs_round_robin": math.inf, "hit_vs_pure_affinity": math.inf}
    load = 0.0
    share = math.inf
    for rate_rps in RATES_RPS[:1] if arguments.quick else RATES_RPS:
        requests = [replace(r, arrived_s=r.arrived_s / rate_rps) for r in window]
        found = {name: run(requests, routing) for name, routing in ARMS.items()}
        prefix = found["prefix"]
        for other in ("round_robin", "pure_affinity"):
            key = f"hit_vs_{other}"
            worst[key] = min(worst[key], prefix.hit_ratio / found[other].hit_ratio)
        load = max(load, prefix.work_ratio, prefix.requests_ratio)
        share = min(share, prefix.hit_ratio / best)
        rows = [
            (n, f.hit_ratio, f.work_ratio, f.requests_ratio, f.ttft_p50_s, f.ttft_p99_s)
            for n, f in found.items()
        ]
        columns = ("", "hits", "work max/mean", "requests max/mean", "TTFT p50 s", "p99 s")
        output.table(f"{rate_rps} requests/s on {REPLICAS} replicas", columns, rows)
        figures[f"at_{rate_rps}_rps"] = {
            name: {key: round(getattr(f, key), 4) for key in Found.__slots__}
            for name, f in found.items()
        }
    figures |= invalidation_figures(window, output)
    figures |= {key: round(value, 3) for key, value in worst.items()}
    figures |= {"share_of_pooled_lru": round(share, 3), "load_max_over_mean": round(load, 3)}
    return output.finish({**figures, "machine": describe()}, verdict(figures, BARS))


if __name__ == "__main__":
    sys.exit(main())
