"""Lines about simulations: what served, what came, who decided, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.cli.simulate_capacity import Capacity, Goal
from mileage.cli.simulate_format import percent, rate, seconds, usd
from mileage.cli.simulate_run import ArmRun
from mileage.cli.simulate_scenario import Scenario
from mileage.cli.simulate_workload import Workload

__all__ = [
    "capacity_line",
    "comparison_line",
    "engine_line",
    "fleet_line",
    "offered_rps",
    "path_note",
    "policy_line",
    "targets_line",
    "trace_line",
    "verdict_line",
    "workload_line",
]


def fleet_line(run: ArmRun) -> str:
    """What serves."""
    fleet, engine = run.arm.fleet, run.arm.fleet.engine
    kv = engine.kv_blocks * engine.block_tokens
    replicas = "" if fleet.replicas == 1 else f"{fleet.replicas} replicas of "
    steps = "" if fleet.calibration is None else "; step times calibrated"
    return (
        f"{replicas}{fleet.model} ({fleet.layout['weights']}) on {fleet.name}; "
        f"KV cache for {kv:,} tokens, up to {engine.running_max:,} requests and "
        f"{engine.step_tokens_max:,} tokens a step{steps}"
    )


def engine_line(run: ArmRun) -> str | None:
    """What engines have besides, and how the fleet is kept; None: nothing."""
    fleet = run.arm.fleet
    shown = {"kv_blocks", "running_max", "step_tokens_max", "block_tokens"}
    parts = [
        f"{field.name}={_spelled(getattr(fleet.engine, field.name))}"
        for field in msgspec.structs.fields(fleet.engine)
        if field.name not in shown and getattr(fleet.engine, field.name) != field.default
    ]
    if fleet.sharing.replicas > 1:
        parts.append(f"{fleet.sharing.replicas} replicas on each GPU")
    if fleet.scaling is not None:
        steps = (f"{count} from {seconds(at_s)}" for at_s, count in fleet.scaling.schedule)
        start = f"a cold start takes {seconds(fleet.scaling.start_s)}"
        parts.append(f"replicas: {', '.join(steps)}; {start}")
    return ", ".join(parts) or None


def _spelled(value: object) -> str:
    """A key's value as --engine-option takes it; of a table only what is not its default."""
    if isinstance(value, msgspec.Struct):
        own = {
            field.name: getattr(value, field.name)
            for field in msgspec.structs.fields(value)
            if getattr(value, field.name) != field.default
        }
        return "{" + ", ".join(f"{name}: {_spelled(each)}" for name, each in own.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_spelled(each) for each in value) + "]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def path_note(scenario: Scenario, run: ArmRun) -> str:
    """Why the compiled path was not taken, where somebody could wonder; else nothing."""
    reason = run.path_reason
    if scenario.path != "auto" or reason is None or reason.startswith("too few"):
        return ""
    return f"in Python, not compiled: {reason}"


def trace_line(work: Workload, run: ArmRun) -> str:
    """What comes."""
    summary = run.summary
    scale = "" if run.rate_scale == 1.0 else f", {run.rate_scale:g} times its rate"
    out = run.result.outcomes
    span_s = out.arrived_s[-1] - out.arrived_s[0] if len(out) > 1 else 0.0
    came = f", {summary.requests / span_s:.3g}/s" if span_s > 0.0 else ""
    return f"{work.name}{scale}: {summary.requests:,} requests over {seconds(span_s)}{came}"


def workload_line(work: Workload) -> str:
    """What comes at the trace's own rate, of one that is held."""
    held = work.held
    span_s = held[-1].arrived_s - held[0].arrived_s
    came = f", {len(held) / span_s:.3g}/s" if span_s > 0.0 else ""
    return f"{work.name}: {len(held):,} requests over {seconds(span_s)}{came}"


def offered_rps(run: ArmRun) -> float:
    """Arrivals per second."""
    out = run.result.outcomes
    span_s = out.arrived_s[-1] - out.arrived_s[0] if len(out) > 1 else 0.0
    return (len(out) - 1) / span_s if span_s > 0.0 else 0.0


def policy_line(scenario: Scenario, run: ArmRun) -> str:
    """What decides, and by which targets."""
    return f"{run.arm.policy.name}; targets: {targets_line(scenario)}"


def targets_line(scenario: Scenario) -> str:
    """What has to be met."""
    slo = scenario.slo
    targets = [f"TTFT {seconds(slo.ttft_s)}"] if slo.ttft_s is not None else []
    if slo.itl_s is not None:
        targets.append(f"ITL {seconds(slo.itl_s)} ({scenario.gaps} of a request's gaps)")
    return ", ".join(targets) or "none"


def verdict_line(scenario: Scenario, run: ArmRun) -> str:
    """The result in one line."""
    s = run.summary
    speed = f"simulated in {seconds(run.wall_s)} ({run.requests_per_s:,.0f} requests/s)"
    price = "" if s.usd_per_mtok is None else f", {usd(s.usd_per_mtok)} per million output tokens"
    if not scenario.has_target:
        return f"{s.answered:,} of {s.requests:,} requests were answered{price}; {speed}"
    met = percent(s.slo_attainment_ratio or 0.0)
    return f"{met} of requests met their targets: {s.goodput_rps:.3g}/s{price}; {speed}"


def comparison_line(scenario: Scenario, runs: Sequence[ArmRun]) -> str:
    """Who serves most, and how much more than the least."""
    if not scenario.has_target:
        return "No targets were given: with --slo goodput tells which is best."
    ordered = sorted(runs, key=lambda run: run.summary.goodput_rps)
    best, least = ordered[-1], ordered[0]
    line = f"Best: {best.arm.name}, {rate(best.summary.goodput_rps)} within targets"
    if least.summary.goodput_rps > 0.0 and best is not least:
        ratio = best.summary.goodput_rps / least.summary.goodput_rps
        line += f", {ratio:.3g} times that of {least.arm.name}"
    return line


def capacity_line(goal: Goal, found: Sequence[Capacity]) -> str:
    """The best of them, in one line."""
    kept = percent(goal.attainment)
    runs = [each.run for each in found if each.run is not None]
    if not runs:
        return f"No rate was found up to which {kept} are kept."
    best = max(runs, key=lambda run: run.rate_scale)
    line = f"{best.arm.name} keeps {kept} within targets up to {rate(offered_rps(best))}"
    least = min(runs, key=lambda run: run.rate_scale)
    if least is not best:
        line += f", {best.rate_scale / least.rate_scale:.3g} times as much as {least.arm.name}"
    return line
