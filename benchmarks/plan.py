"""The planner's speed and regret: 500 set-ups on the Azure conversation trace, on two cores.

`make bench-plan`, or `python -m benchmarks.plan [--json] [--trace FILE] [--cores N]`. The trace is
azure_conv_2023.csv.gz in MILEAGE_DATA_DIR, or what `mileage trace fetch azure-conv-2023` fetched.
The regret is that of the search against every set-up of a smaller grid on the whole trace, for the
worst of several targets. Exit code: 0 all bars met, 1 one missed, 3 no trace.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.simulate import find_trace
from benchmarks.support.machine import describe
from benchmarks.support.output import Output
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from mileage.cli.plan_workers import cores, workers
from mileage.cli.trace_lines import file_lines
from mileage.core.slo import Slo
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.price import usd_per_gpu_hour
from mileage.planner.bounds import Bounds
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World
from mileage.planner.evaluator import Evaluator
from mileage.planner.goal import Goal
from mileage.planner.search import Found, Task, search
from mileage.planner.space import Space
from mileage.planner.traffic import Traffic
from mileage.planner.windows import rungs
from mileage.workload.columns import azure_columns

__all__ = ["main"]

CONFIGS = 500
MODEL = "llama-3.1-8b"
CARDS = tuple(gpu(name).name for name in ("h100", "a100-80gb", "l40s", "a10"))
SLO = Slo(ttft_s=2.0, itl_s=0.06)
TARGETS = (
    SLO,
    Slo(ttft_s=0.2),
    Slo(itl_s=0.03),
    Slo(ttft_s=0.5, itl_s=0.12),
)
GRID = Space(
    gpus=CARDS[:3],
    gpus_max=4,
    tensor_parallel=(1, 2),
    replicas=(1, 2, 3, 4),
    weights=("bf16", "int4"),
    kv=("bf16",),
    running_max=(256,),
    step_tokens_max=(512, 2048),
)
BARS = (
    Bar("wall_s", 120, at_least=False),
    Bar("regret_ratio", 0.02 + 1e-9, at_least=False),
)


def world_of(slo: Slo) -> World:
    """The goal, and public prices."""
    prices = {name: usd_per_gpu_hour(gpu(name)) for name in CARDS}
    return World(goal=Goal(slo=slo), usd_per_gpu_hour=prices)


def chosen(found: Found) -> float:
    """The lowest cost of those that keep the goal."""
    return min(
        (each.figures.cost for each in found.seen if each.figures.feasible), default=math.inf
    )


def in_reach(builder: Builder, traffic: Traffic, goal: Goal) -> list[Candidate]:
    """Set-ups that bounds do not rule out: so many, evenly spread over all there are."""
    space = Space(gpus=CARDS, gpus_max=8)
    bounds = Bounds(traffic, goal)
    alive = [
        each
        for each in space.explore(builder).candidates
        if bounds.out_of_reach(builder.build(each)) is None
    ]
    if len(alive) < CONFIGS:
        raise RuntimeError(f"only {len(alive)} set-ups are in reach, not {CONFIGS}")
    return [alive[at * len(alive) // CONFIGS] for at in range(CONFIGS)]


def speed(traffic: Traffic, count: int, output: Output) -> dict[str, object]:
    """The whole search, bounds and the start of processes with it."""
    builder, world = Builder(model=architecture(MODEL)), world_of(SLO)
    started_s = time.perf_counter()
    candidates = in_reach(builder, traffic, world.goal)
    with workers(Evaluator(builder, traffic, world), count) as evaluate:
        found = search(candidates, traffic, world, evaluate)
    wall_s = time.perf_counter() - started_s
    output.table(
        f"{len(candidates)} set-ups in {wall_s:.1f} s",
        ("share of the trace", "requests", "set-ups"),
        [(f"{each.share_ratio:.1%}", each.requests, each.candidates) for each in found.rounds],
    )
    return {
        "configs": len(candidates),
        "wall_s": round(wall_s, 2),
        "configs_per_s": round(len(candidates) / wall_s, 2),
        "whole_traces": len(found.seen),
        "certain": found.certain,
        "usd_per_mtok": chosen(found),
    }


def regrets(traffic: Traffic, count: int, output: Output) -> list[float]:
    """Cost of what the search chooses over that of the best of the grid, less 1, by target."""
    builder = Builder(model=architecture(MODEL))
    candidates = GRID.explore(builder).candidates
    whole = rungs(traffic)[-1]
    ratios = []
    for slo in TARGETS:
        world = world_of(slo)
        with workers(Evaluator(builder, traffic, world), count) as evaluate:
            brute = evaluate([Task(candidate=each, rung=whole) for each in candidates])
            best = min((each.cost for each in brute if each.feasible), default=math.inf)
            found = search(candidates, traffic, world, evaluate)
        ratios.append(chosen(found) / best - 1.0 if math.isfinite(best) else 0.0)
        output.say(
            f"{len(candidates)} of the grid, {len(found.seen)} on the whole trace: "
            f"{chosen(found):.4f} against {best:.4f} USD per million tokens"
        )
    return ratios


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--cores", type=int, default=min(2, cores()), help="processes")
    parser.add_argument("--trace", type=Path, help="the Azure conversation trace")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    trace = find_trace(arguments.trace)
    if trace is None:
        reason = "no trace: set MILEAGE_DATA_DIR, or mileage trace fetch azure-conv-2023"
        return output.finish({}, Verdict(NO_VERDICT, (reason,)))
    traffic = Traffic(azure_columns(file_lines(trace), path=str(trace)))
    output.say("compiling, where that was not done before")
    builder, world = Builder(model=architecture(MODEL)), world_of(SLO)
    first = Task(candidate=Candidate(gpu=CARDS[0]), rung=rungs(traffic)[0])
    Evaluator(builder, traffic, world).one(first)
    found = speed(traffic, arguments.cores, output)
    ratios = regrets(traffic, arguments.cores, output)
    found |= {"regret_ratio": max(ratios), "regret_ratios": ratios}
    failures = () if found["certain"] else ("the search was not certain of its choice",)
    return output.finish(
        {**found, "cores": arguments.cores, "requests": len(traffic), "machine": describe()},
        verdict(found, BARS, failures=failures),
    )


if __name__ == "__main__":
    sys.exit(main())
