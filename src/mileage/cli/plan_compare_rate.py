"""rate_finder(): what a deployment of `mileage plan compare` serves of a trace, by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

from rich.console import Console

from mileage.cli.plan_compare_cards import RateOf
from mileage.cli.simulate_arguments import CapacityArguments, RunArguments
from mileage.cli.simulate_capacity import Goal, capacity_of
from mileage.cli.simulate_format import percent
from mileage.cli.simulate_lines import offered_rps
from mileage.cli.simulate_policy import slo_of
from mileage.cli.simulate_scenario import scenario_of
from mileage.cli.simulate_workload import Workload
from mileage.core.errors import ConfigError

__all__ = ["rate_finder"]


def rate_finder(asked: CapacityArguments, work: Workload, console: Console) -> RateOf:
    """The search of `mileage simulate capacity`, with the targets, policy and share in `asked`.

    A fleet whose shortest step misses a target serves nothing; of one that keeps the targets at
    any rate that was tried the trace tells no rate.
    """
    goal = Goal(attainment=asked.attainment)
    if asked.slo is not None:
        slo_of(asked.slo)  # what is wrong with the targets themselves is told here

    def rate_of(fleet: RunArguments, share: float) -> tuple[float | None, str]:
        arguments = replace(
            fleet,
            slo=asked.slo,
            gaps=asked.gaps,
            policy=asked.policy,
            config=asked.config,
            seed=asked.seed,
        )
        try:
            scenario = scenario_of(arguments, needs_slo=True)
        except ConfigError as error:
            if error.key != "--slo" or asked.slo is None:
                raise
            return 0.0, f"none: {error.value} cannot be met, {error.expected}"
        (arm,) = scenario.arms
        part = work
        if share < 1.0:
            part = Workload(work.name, work.held[: math.ceil(share * len(work.held))], None, 0.0)
        found = capacity_of(scenario, arm, part, console, goal=goal, start=1.0)
        kept = (
            f"{percent(goal.attainment)} of requests within the targets, policy {arm.policy.name}"
        )
        if found.run is not None:
            return offered_rps(found.run), f"simulated: {work.name}, {kept}"
        if found.unbounded:
            return None, f"not found: no rate of {work.name} was too high, it is too short"
        return 0.0, f"none: not {kept}, even one at a time"

    return rate_of
