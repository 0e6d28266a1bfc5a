"""`mileage deploy`: files for what stands around the gateway."""

from __future__ import annotations

import typer

from mileage.cli.deploy_grafana import register_grafana
from mileage.cli.deploy_prometheus import register_prometheus

__all__ = ["deploy"]

deploy = typer.Typer(
    help="Files for what stands around the gateway: Prometheus, Grafana.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
register_prometheus(deploy)
register_grafana(deploy)


@deploy.callback()
def _deploy() -> None:
    """Files for what stands around the gateway: Prometheus, Grafana."""
