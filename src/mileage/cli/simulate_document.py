"""What `mileage simulate --json` prints: the figures of each arm, and all that was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mileage import __version__
from mileage.cli.simulate_capacity import Capacity, Goal
from mileage.cli.simulate_figures import BEST, FIGURES, WORST, marks
from mileage.cli.simulate_fitted import beyond_seen
from mileage.cli.simulate_fleet import engines_of
from mileage.cli.simulate_intervals import intervals_of
from mileage.cli.simulate_run import ArmRun
from mileage.cli.simulate_scenario import Scenario
from mileage.cli.simulate_workload import Workload

__all__ = [
    "arm_assumptions",
    "assumptions",
    "capacity_document",
    "comparison_document",
    "run_document",
]


def run_document(scenario: Scenario, work: Workload, run: ArmRun) -> str:
    """The document of one simulation."""
    tree = {
        **figures(run),
        "read_s": work.read_s,
        "assumptions": {**assumptions(scenario, work), **arm_assumptions(run)},
    }
    return msgspec.json.encode(tree).decode()


def comparison_document(scenario: Scenario, work: Workload, runs: Sequence[ArmRun]) -> str:
    """The document of several arms; `best` and `worst` name arms by figure, where
    they differ as they are shown."""
    found: dict[str, dict[str, str]] = {BEST: {}, WORST: {}}
    for figure in FIGURES:
        marked = marks(figure, [figure.of(run.summary) for run in runs])
        for run, mark in zip(runs, marked, strict=True):
            if mark:
                found[mark].setdefault(figure.key, run.arm.name)
    tree = {
        "arms": [
            {"name": run.arm.name, **figures(run), "assumptions": arm_assumptions(run)}
            for run in runs
        ],
        "best": found[BEST],
        "worst": found[WORST],
        "read_s": work.read_s,
        "assumptions": assumptions(scenario, work),
    }
    return msgspec.json.encode(tree).decode()


def capacity_document(
    scenario: Scenario, work: Workload, goal: Goal, found: Sequence[Capacity]
) -> str:
    """The document of a search; its own figures are those of the first arm."""
    policies = [_capacity(each, found) for each in found]
    first = policies[0]
    tree = {
        "rate_scale": first["rate_scale"],
        "goodput_rps": first["goodput_rps"],
        "ratio_to": first["ratio_to"],
        "policies": policies,
        "attainment": goal.attainment,
        "decile_min": goal.decile_min,
        "tolerance": goal.tolerance,
        "read_s": work.read_s,
        "assumptions": assumptions(scenario, work),
    }
    return msgspec.json.encode(tree).decode()


def _capacity(each: Capacity, found: Sequence[Capacity]) -> dict[str, Any]:
    own = each.rate_scale
    others = {other.arm.name: other.rate_scale for other in found if other is not each}
    return {
        "name": each.arm.name,
        "rate_scale": own,
        "goodput_rps": None if each.run is None else each.run.summary.goodput_rps,
        "ratio_to": {
            name: own / scale if own is not None and scale is not None else None
            for name, scale in others.items()
        },
        "unbounded": each.unbounded,
        "probes": msgspec.to_builtins(each.probes),
        "figures": None if each.run is None else figures(each.run),
        "light_load": msgspec.to_builtins(each.light),
        "assumptions": None if each.run is None else arm_assumptions(each.run),
    }


def figures(run: ArmRun) -> dict[str, Any]:
    """The figures of one arm: those of Summary, how far off they may be, and how fast it was."""
    return {
        **msgspec.to_builtins(run.summary),
        "intervals": msgspec.to_builtins(intervals_of(run)),
        "wall_s": run.wall_s,
        "requests_per_s": run.requests_per_s,
    }


def assumptions(scenario: Scenario, work: Workload) -> dict[str, Any]:
    """What holds for all arms."""
    slo = scenario.slo
    return {
        "version": __version__,
        "trace": work.name,
        "seed": scenario.sim.seed,
        "ttft_target_s": slo.ttft_s,
        "itl_target_s": slo.itl_s,
        "itl_of_gaps": scenario.gaps,
        "patience_s": scenario.sim.patience_s,
        "configuration": scenario.config_path,
        "routing_affinity": scenario.control.routing.affinity,
    }


def arm_assumptions(run: ArmRun) -> dict[str, Any]:
    """What holds for one arm."""
    fleet, engine = run.arm.fleet, run.arm.fleet.engine
    return {
        "policy": run.arm.policy.name,
        "rate_scale": run.rate_scale,
        "path": run.path,
        "path_reason": run.path_reason,
        "model": fleet.model,
        "gpu": fleet.gpu,
        "replicas": fleet.replicas,
        "gpus": _whole(fleet.gpus * fleet.replicas),
        "step_times": "roofline",
        **fleet.layout,
        "variant": fleet.variant,
        "engine": msgspec.to_builtins(engine),
        "engines_per_replica": engines_of(engine),
        "replicas_per_gpu": fleet.sharing.replicas,
        "shared_capacity_ratio": fleet.sharing.capacity_ratio,
        "scaling": None if fleet.scaling is None else msgspec.to_builtins(fleet.scaling),
        "kv_tokens": engine.kv_blocks * engine.block_tokens,
        "extrapolated": beyond_seen(fleet, run.result),
        "usd_per_gpu_hour": fleet.usd_per_gpu_hour,
        "price_source": fleet.price_source,
    }


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value
