"""Which LoRA adapters are loaded when they are asked for: the keeper, LRU, and the optimum.

`make bench-lora`, or `python -m benchmarks.lora [--json] [--requests N] [--live N]`: 16 adapters of
Zipf popularity on 4 slots, in virtual time; and N of these requests on the embedded engine behind a
real gateway, one after the other. Exit code: 0 all bars met, 1 one missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.support.adapter_live import LiveArm, live_arms
from benchmarks.support.adapter_world import Outcome, kept, least_recent, optimum, uses
from benchmarks.support.processes import exit_on_signals
from mileage.measure.quantiles import quantile
from mileage.policy.residency.adapters import LoraConfig

__all__ = ["main"]

ADAPTERS, SLOTS, ALPHA = 16, 4, 1.0
RATE_PER_S, LOAD_S = 0.5, 0.5
SEEDS = (1, 2, 3)
GAIN_MIN = 0.4
"""Of the way from LRU to the optimum, which knows the future."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; the last line is one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON document only")
    parser.add_argument("--requests", type=int, default=4000, help="of each seed")
    parser.add_argument("--live", type=int, default=40, help="for a real engine; 0: none")
    options = parser.parse_args(arguments)
    if options.live:
        exit_on_signals()
    runs = [_run(seed, options.requests) for seed in SEEDS]
    mine, lru, best = (_mean([run[arm].hit_ratio for run in runs]) for arm in range(3))
    gain = (mine - lru) / (best - lru)
    waited_s = [round(wait, 3) for run in runs for wait in run[0].waited_s]
    document: dict[str, Any] = {
        "hit_ratio": round(mine, 4),
        "lru_hit_ratio": round(lru, 4),
        "optimum_hit_ratio": round(best, 4),
        "gain_ratio": round(gain, 3),
        "loads": sum(run[0].loads for run in runs),
        "lru_loads": sum(run[1].loads for run in runs),
        "optimum_loads": sum(run[2].loads for run in runs),
        "wait_p50_s": quantile(waited_s, 0.5),
        "wait_p99_s": quantile(waited_s, 0.99),
        "load_s": LOAD_S,
        "live": None,
        "met": gain >= GAIN_MIN,
    }
    if options.live:
        live = _live(options.live)
        document["live"] = {name: _figures(arm) for name, arm in live.items()}
        document["met"] = gain >= GAIN_MIN and not any(arm.wrong for arm in live.values())
    if not options.json:
        print(f"{ADAPTERS} adapters, {SLOTS} slots, Zipf {ALPHA}, {RATE_PER_S}/s, load {LOAD_S} s")
        for name, arm in (("keeper", 0), ("LRU", 1), ("optimum", 2)):
            hits = _mean([run[arm].hit_ratio for run in runs])
            print(f"  {name:8} hits {hits:6.1%}  loads {sum(run[arm].loads for run in runs)}")
        print(f"  the keeper gets {gain:.0%} of what knowing the future would")
        for name, figures in (document["live"] or {}).items():
            print(f"  live, {name}: {msgspec.json.encode(figures).decode()}")
    print(msgspec.json.encode(document).decode())
    return 0 if document["met"] else 1


def _run(seed: int, requests: int) -> tuple[Outcome, Outcome, Outcome]:
    sequence = uses(
        adapters=ADAPTERS, alpha=ALPHA, rate_per_s=RATE_PER_S, requests=requests, seed=seed
    )
    mine = kept(sequence, SLOTS, load_s=LOAD_S, config=LoraConfig())
    return mine, least_recent(sequence, SLOTS), optimum(sequence, SLOTS)


def _live(requests: int) -> dict[str, LiveArm]:
    sequence = uses(
        adapters=ADAPTERS, alpha=ALPHA, rate_per_s=RATE_PER_S, requests=requests, seed=SEEDS[0]
    )
    mine, lru = live_arms([name for _, name in sequence], adapters=ADAPTERS, slots=SLOTS)
    return {"keeper": mine, "lru": lru}


def _figures(arm: LiveArm) -> dict[str, float | None]:
    return {
        "requests": arm.requests,
        "hit_ratio": round(arm.hits / arm.requests, 4),
        "loads": arm.loads,
        "wrong": arm.wrong,
        "seconds": round(sum(arm.seconds), 2),
        "p50_s": quantile(arm.seconds, 0.5),
        "p90_s": quantile(arm.seconds, 0.9),
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


if __name__ == "__main__":
    sys.exit(main())
