"""`mileage cost`: who spent what, adding up to the bill."""

from __future__ import annotations

import typer

from mileage.cli.cost_anomalies import register_anomalies
from mileage.cli.cost_arguments import CostArguments
from mileage.cli.cost_bottleneck import register_bottleneck
from mileage.cli.cost_focus import register_focus
from mileage.cli.cost_forecast import register_forecast
from mileage.cli.cost_group import CostGroup
from mileage.cli.cost_models import register_models
from mileage.cli.cost_prices import register_prices
from mileage.cli.cost_run import run_cost
from mileage.cli.cost_verify import register_verify
from mileage.cli.simulate_arguments import taking

__all__ = ["cost"]

cost = typer.Typer(cls=CostGroup, rich_markup_mode=None)
register_forecast(cost)
register_anomalies(cost)
register_models(cost)
register_prices(cost)
register_verify(cost)
register_bottleneck(cost)
register_focus(cost)


@cost.callback(invoke_without_command=True)
@taking(CostArguments)
def run(context: typer.Context, arguments: CostArguments) -> None:
    """Show who spent what, down to the last GPU-nanosecond: accounts and idle time are the total.

    Exits with 3 where the ledger has nothing of that time. --json prints amounts as exact decimals.

    Example: mileage cost --by tenant --since this-month

    By a label of requests, with idle time paid by use: --by label:app --spread use; as a page:
    --html costs.html
    """
    code = run_cost(arguments)
    if code:
        raise typer.Exit(code)
