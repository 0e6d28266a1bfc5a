"""`mileage deploy grafana`: the dashboard, and how Grafana finds it by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.deploy_files import tell_files, write_files
from mileage.deploy.grafana_dashboard import dashboard_json

__all__ = ["register_grafana"]


def register_grafana(group: typer.Typer) -> None:
    """Register `grafana` with the group."""
    group.command(name="grafana")(grafana)


def grafana(
    out: Annotated[Path, typer.Option(help="Directory for the file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a dashboard for Grafana: money, targets, engines and the machine under them.

    Import it under Dashboards, New, Import, or put it where a provider of Grafana's provisioning
    looks. It reads series that the rules of `mileage deploy prometheus` record.

    Example: mileage deploy grafana --out grafana
    """
    paths = write_files(out, {"mileage-dashboard.json": dashboard_json()})
    tell_files(paths, as_json=as_json)
