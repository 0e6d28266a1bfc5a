"""`mileage deploy prometheus`: recording and alert rules, and the configuration that loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.deploy_files import tell_files, write_files
from mileage.deploy.burn_rate import Objective
from mileage.deploy.prometheus_rules import rules_yaml
from mileage.deploy.scrape_config import scrape_yaml

__all__ = ["register_prometheus"]

_RULES = "mileage-rules.yml"


def register_prometheus(group: typer.Typer) -> None:
    """Register `prometheus` with the group."""
    group.command(name="prometheus")(prometheus)


def prometheus(
    out: Annotated[Path, typer.Option(help="Directory for the files.")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT of an admin plane; again for each. [default: 127.0.0.1:8081]"),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(help="File with the admin token, on the machine of Prometheus."),
    ] = None,
    objective: Annotated[
        float, typer.Option(help="Share of streams that is to meet each target.")
    ] = 0.99,
    objective_days: Annotated[
        float, typer.Option(help="Days over which the objective is kept.")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write recording and alert rules for Prometheus, and a configuration that loads them.

    Alerts on targets burn by several windows: a short outage that spends the error budget fast
    pages at once, a slow one makes a ticket.

    Example: mileage deploy prometheus --out prometheus --objective 0.99
    """
    goal = Objective(ratio=objective, window_days=objective_days)
    targets = target or ["127.0.0.1:8081"]
    files = {
        _RULES: rules_yaml(goal),
        "prometheus.yml": scrape_yaml(targets, _RULES, token_file=token_file),
    }
    tell_files(write_files(out, files), as_json=as_json)
