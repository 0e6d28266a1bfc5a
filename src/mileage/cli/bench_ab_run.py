"""run_ab(): an A/B run from its plan to its slots, with what is looked at beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
import typer

from mileage.cli.bench_ab_arguments import AbArguments
from mileage.cli.bench_ab_plan import AbPlan
from mileage.cli.bench_measure import stopped_by_signals
from mileage.cli.bench_prepare import Prepared, prepare
from mileage.cli.bench_workload import BenchWorkload
from mileage.core.errors import EngineError
from mileage.loadgen.arms_result import Judge, Outlook
from mileage.loadgen.arms_run import ArmsOptions, ArmsRun, run_arms
from mileage.loadgen.arms_slots import Arm, ArmCalls, Portions
from mileage.loadgen.arms_switch import ArmSwitch, until_ready
from mileage.loadgen.target import Target
from mileage.measure.ab_test import AbResult
from mileage.measure.comparison import BLOCKS_MIN
from mileage.measure.sequential import SequentialPlan
from mileage.measure.server_use import ServerUse
from mileage.scrape.server_use import ServerUseMeter
from mileage.workload.trace_request import TraceRequest

__all__ = ["AbRun", "run_ab"]

_ARMS: Final[tuple[Arm, Arm]] = ("a", "b")
_OVER_RATIO: Final = 1.1
"""A run may last so many times as long as it was given, to end with a whole pair."""
_TIMED_PAIRS: Final = 2
"""After these it is known how long a pair takes: one begins with a and one with b."""


class AbRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and what it says."""

    run: ArmsRun
    result: AbResult
    plan: SequentialPlan
    """That was followed: with as many pairs as there was time for."""
    outlook: list[Outlook]
    notes: list[str]
    facts: dict[str, dict[str, Any]]
    """By arm: what is known of its endpoint."""
    workload: dict[str, Any]
    elapsed_s: float


class _Again(Iterable[TraceRequest]):
    """A workload, from its beginning as often as it is asked for."""

    def __init__(self, workload: BenchWorkload) -> None:
        self._workload = workload

    def __iter__(self) -> Iterator[TraceRequest]:
        return iter(self._workload.make())


async def run_ab(arguments: AbArguments, plan: AbPlan, workload: BenchWorkload) -> AbRun:
    """Look at both endpoints, run, and judge. Raises EngineError where one does not answer, or has
    not the model."""
    try:
        if plan.switch is not None:
            await _tried(plan, plan.switch)
        prepared = await _prepared(arguments, plan, workload)
    except BaseException:
        if plan.switch is not None:
            await plan.switch.restore()
        raise
    judge = Judge(
        plan.plan,
        slo=plan.slo,
        metrics=plan.metrics,
        usd_per_hour={arm: plan.arm(arm).usd_per_hour for arm in _ARMS},
        cache_is_the_effect=arguments.cache_is_the_effect,
    )
    meters = {arm: ServerUseMeter(plan.arm(arm).use) for arm in _ARMS}
    if plan.sharing == "endpoint":
        meters["b"] = meters["a"]
    began_s = time.monotonic()
    for meter in {id(meter): meter for meter in meters.values()}.values():
        await meter.start()
    try:
        run = await _run(plan, prepared, workload, judge, meters)
    finally:
        for meter in {id(meter): meter for meter in meters.values()}.values():
            await meter.stop()
    result = judge.result(run)
    return AbRun(
        run=run,
        result=result,
        plan=judge.plan,
        outlook=judge.outlook(run, result, effect_ratio=plan.effect_ratio, power=plan.power),
        notes=judge.notes(run, mode=plan.mode, sharing=plan.sharing),
        facts={arm: prepared[arm].facts for arm in _ARMS},
        workload={"name": workload.name, **workload.facts},
        elapsed_s=time.monotonic() - began_s,
    )


async def _tried(plan: AbPlan, switch: ArmSwitch) -> None:
    """Both arms' settings once: what is refused is told before anything is sent; and the endpoint
    may be one that a command starts."""
    for arm in ("b", "a"):
        await switch.to(arm)
    await until_ready(
        plan.a.url, authorization=plan.a.authorization, timeout_s=plan.ready_timeout_s
    )


async def _prepared(
    arguments: AbArguments, plan: AbPlan, workload: BenchWorkload
) -> dict[Arm, Prepared]:
    found: dict[Arm, Prepared] = {}
    for arm in _ARMS:
        if arm == "b" and plan.sharing == "endpoint":
            found["b"] = found["a"]
            break
        side = plan.arm(arm)
        found[arm] = await prepare(arguments, side.url, workload, authorization=side.authorization)
        if (doubt := found[arm].doubt) is not None:
            shown = found[arm].endpoint.shown
            raise EngineError(shown, doubt.removeprefix(f"{shown}: "))
    return found


async def _run(
    plan: AbPlan,
    prepared: dict[Arm, Prepared],
    workload: BenchWorkload,
    judge: Judge,
    meters: dict[Arm, ServerUseMeter],
) -> ArmsRun:
    stop = asyncio.Event()
    targets: dict[Arm, Target] = {arm: prepared[arm].target for arm in _ARMS}

    def observe(arm: Arm, start_s: float, end_s: float) -> ServerUse:
        return meters[arm].between(start_s, end_s)

    with stopped_by_signals(stop):
        return await run_arms(
            Portions(_Again(workload), slot_s=plan.slot_s, count=plan.slot_requests),
            {arm: ArmCalls(arm, prepared[arm].plan, share_cache=plan.share_cache) for arm in _ARMS},
            targets,
            ArmsOptions(
                mode=plan.mode,
                load=plan.load,
                pairs_max=plan.plan.blocks_max,
                wash_out_requests=plan.wash_out_requests,
                seed=prepared["a"].plan.seed,
                ready_timeout_s=plan.ready_timeout_s,
            ),
            switch=plan.switch,
            observe=observe,
            is_enough=_enough(plan, judge),
            on_slot=lambda pair, arms: typer.echo(
                f"pair {pair + 1} of up to {judge.plan.blocks_max}: {arms}", err=True
            ),
            stop=stop,
        )


def _enough(plan: AbPlan, judge: Judge) -> Callable[[ArmsRun], bool]:
    began_s = time.monotonic()

    def is_enough(run: ArmsRun) -> bool:
        pair_s = (time.monotonic() - began_s) / run.pairs
        possible = max(run.pairs, int(_OVER_RATIO * plan.duration_max_s / pair_s))
        if run.pairs == _TIMED_PAIRS or possible == run.pairs:
            judge.shorten(possible)
        if possible == run.pairs:
            return True  # another pair would take it past its time
        if run.pairs < BLOCKS_MIN:
            return False
        result = judge.result(run)
        typer.echo(f"after {run.pairs} pairs: {result.text}", err=True)
        return result.stop

    return is_enough
