"""The highest rate at which a fleet keeps its targets, by bisection over the trace's rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.simulate_format import percent, seconds
from mileage.cli.simulate_run import ArmRun, run_arm
from mileage.cli.simulate_scenario import Arm, Scenario
from mileage.cli.simulate_workload import Workload
from mileage.core.bounds import require_range, require_up_to
from mileage.core.errors import ConfigError
from mileage.costmodel.step_table import StepTable
from mileage.sim.summary import Summary
from mileage.workload.trace_request import TraceRequest

__all__ = ["Capacity", "Goal", "Probe", "capacity_of", "highest", "impossible"]

_SCALE_MAX: Final = 4096.0
_SCALE_MIN: Final = 1.0 / 1024.0
_LIGHT_REQUESTS: Final = 300
_LIGHT_GAP_S: Final = 1.0


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be kept. Raises ConfigError by option."""

    attainment: float
    decile_min: float | None = None
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        require_up_to("--attainment", self.attainment, 1.0)
        if self.decile_min is not None:
            require_up_to("--decile-min", self.decile_min, 1.0)
        require_range("--tolerance", self.tolerance, 0.0005, 0.5)

    def kept(self, summary: Summary) -> bool:
        """Whether those figures do."""
        if (summary.slo_attainment_ratio or 0.0) < self.attainment:
            return False
        deciles = summary.attainment_by_prompt_decile
        return self.decile_min is None or min(deciles, default=1.0) >= self.decile_min


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation of a search."""

    rate_scale: float
    slo_attainment_ratio: float
    worst_decile_ratio: float | None
    kept: bool


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found for one arm."""

    arm: Arm
    run: ArmRun | None
    """At the highest rate that keeps the goal; None where no rate does, or every one."""
    probes: tuple[Probe, ...]
    light: Summary | None
    """Of requests one at a time, where the goal was missed by that already."""

    @property
    def rate_scale(self) -> float | None:
        """The highest rate over the trace's own; None where there is none."""
        return None if self.run is None else self.run.rate_scale

    @property
    def unbounded(self) -> bool:
        """Every rate was kept: the trace is too short, or the fleet too large for it."""
        return self.run is None and self.light is None


def capacity_of(
    scenario: Scenario,
    arm: Arm,
    work: Workload,
    console: Console,
    *,
    goal: Goal,
    start: float,
) -> Capacity:
    """Search the highest rate for one arm, from `start` times the trace's own on."""
    probes: list[Probe] = []
    best: ArmRun | None = None

    def kept(rate_scale: float) -> bool:
        nonlocal best
        label = f"{arm.name} at {rate_scale:.4g} times the rate"
        run = run_arm(scenario, arm, work, console, rate_scale=rate_scale, label=label)
        summary, is_kept = run.summary, goal.kept(run.summary)
        probes.append(
            Probe(
                rate_scale=rate_scale,
                slo_attainment_ratio=summary.slo_attainment_ratio or 0.0,
                worst_decile_ratio=min(summary.attainment_by_prompt_decile, default=None),
                kept=is_kept,
            )
        )
        if is_kept and (best is None or rate_scale > best.rate_scale):
            best = run
        return is_kept

    light: Summary | None = None
    if not kept(start):
        light = _light_load(scenario, arm, work, console)
        if not goal.kept(light):
            return Capacity(arm=arm, run=None, probes=tuple(probes), light=light)
    found = highest(kept, start, goal.tolerance, known=bool(probes[0].kept))
    run = best if math.isfinite(found) else None
    if run is not None:
        light = None
    return Capacity(arm=arm, run=run, probes=tuple(probes), light=light)


def highest(
    kept: Callable[[float], bool],
    start: float,
    tolerance: float,
    *,
    known: bool,
    low: float = _SCALE_MIN,
    high: float = _SCALE_MAX,
) -> float:
    """The highest value that is kept, to `tolerance`, where higher ones are not.

    `known`: whether `start` is kept. Infinity where all up to `high` times `start` are; 0 where
    none is, down to `low` times it. Between values that are and are not it goes by their
    geometric mean.
    """
    good, bad = (start, math.inf) if known else (0.0, start)
    while bad == math.inf:
        if good >= high * start:
            return math.inf
        if kept(good * 2.0):
            good *= 2.0
        else:
            bad = good * 2.0
    while good == 0.0:
        if bad <= low * start:
            return 0.0
        if kept(bad / 2.0):
            good = bad / 2.0
        else:
            bad /= 2.0
    while bad / good > 1.0 + tolerance:
        middle = math.sqrt(good * bad)
        if kept(middle):
            good = middle
        else:
            bad = middle
    return good


def impossible(scenario: Scenario, goal: Goal, capacities: Sequence[Capacity]) -> ConfigError:
    """The error where no arm keeps the goal, even with one request at a time."""
    best = max(
        (each for each in capacities if each.light is not None),
        key=lambda each: (each.light and each.light.slo_attainment_ratio) or 0.0,
    )
    assert best.light is not None
    light = best.light
    parts = [f"{percent(light.slo_attainment_ratio or 0.0)} of requests meet their targets"]
    for name, found, target_s in (
        ("TTFT", light.ttft_s, scenario.slo.ttft_s),
        ("ITL", light.itl_s, scenario.slo.itl_s),
    ):
        if found is not None and target_s is not None:
            parts.append(
                f"{name} is {seconds(found.p50)} at the median and {seconds(found.p99)} at p99 "
                f"(target {seconds(target_s)})"
            )
    if goal.decile_min is not None and light.attainment_by_prompt_decile:
        parts.append(f"{percent(min(light.attainment_by_prompt_decile))} of the worst tenth do")
    expected = f"what can be kept: with one request at a time ({best.arm.name}), {'; '.join(parts)}"
    return ConfigError("--attainment", goal.attainment, expected)


def _light_load(scenario: Scenario, arm: Arm, work: Workload, console: Console) -> Summary:
    """The figures of a sample of the requests, each of them alone in the fleet."""
    held = work.held
    step = max(1, math.ceil(len(held) / _LIGHT_REQUESTS))
    at_s, alone = 0.0, []
    for request in held[::step]:
        alone.append(replace(request, arrived_s=at_s))
        at_s += _LIGHT_GAP_S + 1.5 * _alone_s(request, arm)
    few = Workload(work.name, alone, None, 0.0)
    label = f"{arm.name}, one request at a time"
    return run_arm(scenario, arm, few, console, rate_scale=1.0, label=label).summary


def _alone_s(request: TraceRequest, arm: Arm) -> float:
    """About as long as a request takes that is alone."""
    table: StepTable = arm.fleet.table
    most = arm.fleet.engine.step_tokens_max
    prompt, output = request.prompt_tokens, request.output_tokens
    chunk = min(prompt, most)
    prefill_s = math.ceil(prompt / most) * table.step_s(0, 0, chunk, chunk * prompt)
    return prefill_s + output * table.step_s(1, prompt + output)
