"""`mileage experiment`: try a policy or an engine on a part of the live traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table

from mileage.cli.admin_call import Admin, TokenFile, admin_error, call_admin
from mileage.cli.config import load_config
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.experiment import ExperimentStatus
from mileage.gateway.admin.experiment_report import ArmReport

__all__ = ["experiment"]

experiment = typer.Typer(
    help="Try a policy or an engine on a part of the live traffic.", no_args_is_help=True
)

_ADMIN = "http://127.0.0.1:8081"
_PATH = "/api/v1/experiment"
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@experiment.callback()
def _experiment() -> None:
    """Try a policy or an engine on a part of the live traffic."""


@experiment.command()
def start(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="A mileage.toml whose [experiment] is to begin; without it that of the gateway's "
            "own configuration begins anew.",
        ),
    ] = None,
    admin: Admin = _ADMIN,
    token_file: TokenFile = None,
    as_json: _AsJson = False,
) -> None:
    """Begin an experiment; one that runs ends.

    Exit code 2: its configuration is not in order; 1: the gateway cannot be asked.

    Example: mileage experiment start --config trial.toml
    """
    body = b""
    if config is not None:
        section = load_config(config, {}).experiment
        if section.name is None:
            raise ConfigError("experiment.name", None, f"a name, in {config}")
        body = msgspec.json.encode(section)
    _ask("start", admin, token_file, body, as_json=as_json)


@experiment.command()
def status(admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False) -> None:
    """Both arms side by side, and what has become of the experiment.

    Exit code 1: a canary was rolled back, or the gateway cannot be asked; 3: no verdict yet.

    Example: mileage experiment status --json
    """
    found = _ask("", admin, token_file, b"", as_json=as_json, method="GET")
    if found.state == "rolled_back":
        raise typer.Exit(1)
    if found.state == "running" and found.verdict == "not_yet":
        raise typer.Exit(3)


@experiment.command()
def stop(admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False) -> None:
    """End the experiment: there are no arms any more, all replicas take all requests.

    Example: mileage experiment stop
    """
    _ask("stop", admin, token_file, b"", as_json=as_json)


@experiment.command()
def promote(admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False) -> None:
    """Give arm b all the traffic, until the experiment is stopped or another begins.

    Example: mileage experiment promote
    """
    _ask("promote", admin, token_file, b"", as_json=as_json)


def _ask(
    what: str,
    admin: str,
    token_file: Path | None,
    body: bytes,
    *,
    as_json: bool,
    method: Literal["GET", "POST"] = "POST",
) -> ExperimentStatus:
    path = f"{_PATH}/{what}" if what else _PATH
    answer = call_admin(admin, path, token_file, method=method, body=body)
    if answer.status in (400, 422):
        if as_json:
            typer.echo(answer.body.decode())
        typer.echo(f"mileage: {admin_error(answer).message}", err=True)
        raise typer.Exit(2)
    if answer.status != 200:
        raise MileageError(f"{admin} answered {answer.status}: {admin_error(answer).message}")
    found = msgspec.json.decode(answer.body, type=ExperimentStatus)
    if as_json:
        typer.echo(answer.body.decode())
    else:
        _show(found)
    return found


def _show(found: ExperimentStatus) -> None:
    console = wide_console()
    if found.name is None:
        console.print("there is no experiment")
        return
    traffic = "" if found.ratio is None else f", {found.ratio:.0%} of the traffic in arm b"
    console.print("experiment ", safe_text(found.name), f"({found.mode})")
    console.print(f"state       {found.state}{traffic}")
    console.print("reason     ", safe_text(found.reason or ""))
    if found.a is None or found.b is None:
        return
    console.print(f"verdict     {found.verdict}:", safe_text(found.verdict_text or ""))
    console.print(f"evidence    {found.evidence or 1.0:.2g} to 1 that arm b is worse")
    table = Table("", "arm a", "arm b", box=None)
    for name, one, other in zip(_ROWS, _cells(found.a), _cells(found.b), strict=True):
        table.add_row(name, one, other)
    console.print(table)
    for each in found.comparisons:
        console.print(" ", safe_text(each.text))


_ROWS = (
    "requests",
    "errors",
    "targets met",
    "TTFT p50",
    "TTFT p99",
    "ITL p99",
    "E2E p50",
    "E2E p99",
)


def _cells(arm: ArmReport) -> list[str]:
    times = (arm.ttft_p50_s, arm.ttft_p99_s, arm.itl_p99_mean_s, arm.e2e_p50_s, arm.e2e_p99_s)
    return [
        str(arm.requests),
        "-" if arm.error_ratio is None else f"{arm.error_ratio:.2%}",
        "-" if arm.target_met_ratio is None else f"{arm.target_met_ratio:.2%}",
        *("-" if time_s is None else f"{time_s:.3f} s" for time_s in times),
    ]
