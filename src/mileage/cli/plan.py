"""`mileage plan`: the cheapest set-up that meets the targets, and when it pays."""

from __future__ import annotations

import typer

from mileage.cli.plan_calibrate import register_calibrate
from mileage.cli.plan_compare import register_compare
from mileage.cli.plan_group import PlanGroup
from mileage.cli.plan_roi import register_roi
from mileage.cli.usage import show_usage

__all__ = ["plan"]

plan = typer.Typer(cls=PlanGroup, rich_markup_mode=None)
register_roi(plan)
register_compare(plan)
register_calibrate(plan)


@plan.callback(invoke_without_command=True)
def run(context: typer.Context) -> None:
    """Choose GPUs, precision and settings, and tell what they cost and when they pay back."""
    show_usage(context, "COMMAND", as_json=False)
