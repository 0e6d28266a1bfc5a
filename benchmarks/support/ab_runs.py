"""One whole A/B run against the server of drawn service times, from its workload to its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, Literal

import msgspec
import uvloop

from mileage.core.slo import Slo
from mileage.loadgen.arms_result import Judge
from mileage.loadgen.arms_run import ArmsOptions, run_arms
from mileage.loadgen.arms_slots import ArmCalls, Portions
from mileage.loadgen.plan_options import PlanOptions
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.sequential import SequentialPlan
from mileage.workload.trace_request import TraceRequest

__all__ = ["METRIC", "PLAN", "AbOutcome", "AbTask", "Kind", "run_one"]

Kind = Literal["interleaved", "mirrored", "closed"]
"""The first two in an open loop; closed: slots of so many requests, the arms in turn."""

PLAN: Final = SequentialPlan(blocks_first=6, blocks_between=2, blocks_max=12)
METRIC: Final = "e2e_mean_s"
SLOT_S: Final = 1.0
WASH_OUT_S: Final = 0.25
RATE: Final = 80.0
LANES: Final = 16
SLOT_REQUESTS: Final = 70
WORKLOAD_S: Final = 60.0


class AbTask(msgspec.Struct, frozen=True, kw_only=True):
    """A run to make."""

    scale: float
    """How many times as long arm b's answers take as arm a's."""
    kind: Kind
    seed: int


class AbOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave."""

    task: AbTask
    verdict: str
    text: str
    pairs: int
    ratio: float | None
    ci95: tuple[float, float] | None
    ci95_alone: tuple[float, float] | None
    detectable_ratio: float | None
    error: str | None


def run_one(task: AbTask, url: str) -> AbOutcome:
    """Run it; takes up to 40 seconds, in which hardly anything is computed."""
    return uvloop.run(_run(task, url))


async def _run(task: AbTask, url: str) -> AbOutcome:
    closed = task.kind == "closed"
    load = RunOptions(
        mode="closed" if closed else "open",
        concurrency=LANES if closed else None,
        warmup_s=0.0 if closed else WASH_OUT_S,
        duration_s=None if closed else SLOT_S - WASH_OUT_S,
        drain_s=5.0,
    )
    judge = Judge(PLAN, slo=Slo(), metrics=(METRIC,))
    run = await run_arms(
        Portions(
            list(_workload(task.seed)), slot_s=SLOT_S, count=SLOT_REQUESTS if closed else None
        ),
        {
            "a": ArmCalls("a", _plan("a", 1.0, task.seed), share_cache=True),
            "b": ArmCalls("b", _plan("b", task.scale, task.seed), share_cache=True),
        },
        {"a": Target(url=url), "b": Target(url=url)},
        ArmsOptions(
            mode="mirrored" if task.kind == "mirrored" else "interleaved",
            load=load,
            pairs_max=PLAN.blocks_max,
            wash_out_requests=LANES if closed else 0,
            seed=task.seed,
        ),
        is_enough=judge.is_enough,
    )
    result = judge.result(run)
    found = result.comparisons.get(METRIC)
    return AbOutcome(
        task=task,
        verdict=result.verdict,
        text=result.text,
        pairs=result.blocks,
        ratio=None if found is None else found.ratio,
        ci95=None if found is None else found.ci95,
        ci95_alone=None if found is None else found.ci95_alone,
        detectable_ratio=None if found is None else found.detectable_ratio,
        error=run.error,
    )


def _plan(arm: str, scale: float, seed: int) -> PlanOptions:
    return PlanOptions(model=f"{scale:g}-{arm}-{seed}", seed=seed, stream=False)


def _workload(seed: int) -> Iterator[TraceRequest]:
    """Arrivals by chance."""
    rng = Random(f"arrivals {seed}")
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(RATE)) < WORKLOAD_S:
        yield TraceRequest(arrived_s=at_s, prompt_tokens=20, output_tokens=8)
