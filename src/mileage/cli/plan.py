"""`mileage plan`: the cheapest set-up that meets the targets, and when it pays."""

from __future__ import annotations

import typer

from mileage.cli.plan_arguments import PlanArguments
from mileage.cli.plan_calibrate import register_calibrate
from mileage.cli.plan_check import register_check
from mileage.cli.plan_compare import register_compare
from mileage.cli.plan_group import PlanGroup
from mileage.cli.plan_roi import register_roi
from mileage.cli.plan_search import search_plan
from mileage.cli.simulate_arguments import taking
from mileage.cli.usage import show_usage

__all__ = ["plan"]

plan = typer.Typer(cls=PlanGroup, rich_markup_mode=None)
register_roi(plan)
register_compare(plan)
register_calibrate(plan)
register_check(plan)


@plan.callback(invoke_without_command=True)
@taking(PlanArguments)
def run(context: typer.Context, arguments: PlanArguments) -> None:
    """Find the cheapest GPUs, precision and settings that meet the targets on a trace.

    Bounds rule out what nothing could save, and the simulator decides: on the busiest windows of
    the trace first, then on all of it. Prints the cheapest set-up that keeps the targets and other
    picks, the Pareto front of TTFT, ITL and cost, what binds each, its memory and its command.
    Exits with 1 where nothing keeps the targets.

    Example: mileage plan --model llama-3.1-8b --trace azure-conv-2023 --gpu h100,l40s --slo
    ttft=500ms,itl=60ms
    """
    if context.invoked_subcommand is not None:
        return
    if arguments.trace is None and arguments.model is None:
        show_usage(context, "--model", as_json=arguments.as_json)
    search_plan(arguments)
