"""All limit policies on the step engine at twice its capacity, beside a sweep of static limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from benchmarks.support.calls import Mix, poisson_times
from benchmarks.support.goodput import Arm, Targets, light_targets
from benchmarks.support.governor_lanes import Lane, run_lanes
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.load_client import Loop, run_loops
from benchmarks.support.step_answers import CHAT_MODEL
from benchmarks.support.step_upstream import StepUpstream
from benchmarks.support.watch import LOAD_CORE
from mileage.control.config import LimitPolicyName

__all__ = ["measure_policies", "show_rows", "step_capacity_per_s"]

MIX = Mix(model=CHAT_MODEL, prompt_tokens=(32, 256), output_tokens=(8, 32))
ALONE = "engine alone"
LIMITS = (12, 16, 20, 24, 32, 64)
OVERLOAD = 2.0
TARGET_FACTOR = 3.0
WARM_S = 5.0
DRAIN_S = 4.0
_HEADINGS = {
    "goodput_per_s": "good/s",
    "completed_per_s": "all/s",
    "rejected_ratio": "refused",
    "ttft_p95_s": "TTFT p95",
    "itl_p95_s": "ITL p95",
    "e2e_p99_s": "E2E p99",
    "running_mean": "running",
    "completions_sigma_over_mean": "sigma/mean",
}


def measure_policies(around: Surroundings) -> Part:
    """Every arm gets the same requests; the first seconds of each are not counted."""
    part = Part()
    seconds = 5.0 if around.quick else 30.0
    limits = LIMITS[1::2] if around.quick else LIMITS
    with StepUpstream(around.new_directory("capacity"), core=LOAD_CORE) as engine:
        targets, capacity_per_s = _calibrate(engine, quick=around.quick)
    times = poisson_times(20, OVERLOAD * capacity_per_s, WARM_S + seconds)
    slo = {"ttft_s": targets.ttft_s, "itl_s": targets.itl_s}
    governors: dict[str, Mapping[str, Any]] = {
        f"static {limit}": {"policy": "static", "static": {"limit": limit}} for limit in limits
    }
    governors |= {policy: {"policy": policy} for policy in get_args(LimitPolicyName)}
    lanes = [Lane(ALONE, MIX.calls(21, times))]
    lanes += [
        Lane(name, MIX.calls(21, times), {"governor": governor, "slo": slo})
        for name, governor in governors.items()
    ]
    run_lanes(around, lanes, part, drain_s=DRAIN_S)
    rows = {lane.name: _row(lane, targets, seconds) for lane in lanes}
    best = max((f"static {n}" for n in limits), key=lambda n: rows[n]["goodput_per_s"])
    show_rows(around, f"Policies at {OVERLOAD:g} x {capacity_per_s:.1f} requests/s", rows)
    part.figures = {
        "policies_capacity_per_s": round(capacity_per_s, 2),
        "policies_ttft_target_s": round(targets.ttft_s, 4),
        "policies_itl_target_s": round(targets.itl_s, 4),
        "policies_best_static": best,
        "policies_model_vs_best_static": _ratio(rows["model"], rows[best]),
        "policies": rows,
    }
    return part


def step_capacity_per_s(engine: StepUpstream, mix: Mix, seconds: float, connections: int) -> float:
    """Answers per second of an engine that always has so many requests."""
    calls = run_loops(engine.port, [Loop(mix.endless(11), connections)], duration_s=seconds)
    # The first wave is answered all at once, and the last one on an emptying engine.
    ends = sorted(call.end_s for call in calls if call.whole and call.end_s is not None)
    steady = [end_s for end_s in ends if 0.25 * seconds < end_s <= seconds]
    return len(steady) / (0.75 * seconds)


def _calibrate(engine: StepUpstream, *, quick: bool) -> tuple[Targets, float]:
    alone = run_loops(engine.port, [Loop(MIX.endless(10), 1)], duration_s=3.0 if quick else 12.0)
    targets = light_targets(alone, TARGET_FACTOR)
    return targets, step_capacity_per_s(engine, MIX, 4.0 if quick else 12.0, 64)


def _row(lane: Lane, targets: Targets, seconds: float) -> dict[str, Any]:
    """The figures of one arm."""
    arm = Arm(lane.name)
    arm.add([call for call in lane.calls if call.due_s >= WARM_S], seconds)
    figures: dict[str, Any] = arm.figures(targets)
    figures["running_mean"] = round(lane.stats["running_s"] / lane.stats["busy_s"], 1)
    figures["preemptions"] = lane.stats["preemptions"]
    return figures


def show_rows(around: Surroundings, title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """The table of the arms: of their figures those that have a heading."""
    columns = [column for column in next(iter(rows.values())) if column in _HEADINGS]
    around.output.table(
        title,
        ("arm", *(_HEADINGS[column] for column in columns)),
        [(name, *(row[column] for column in columns)) for name, row in rows.items()],
    )


def _ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float | None:
    other = theirs["goodput_per_s"]
    return round(ours["goodput_per_s"] / other, 3) if other else None
