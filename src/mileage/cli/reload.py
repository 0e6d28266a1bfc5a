"""`mileage reload`: have a running gateway read its configuration again."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from mileage.cli.admin_call import Admin, TokenFile, admin_error, call_admin
from mileage.core.errors import MileageError
from mileage.gateway.admin.reload import Reloaded

__all__ = ["reload"]


def reload(
    admin: Admin = "http://127.0.0.1:8081",
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Have a running gateway read its configuration again and apply what is hot.

    Prints the version that is in force, what has changed, and which keys need a restart. A
    configuration that is not in order changes nothing: its error is printed, with exit code 2.
    Exit code 1: the gateway cannot be asked, or a worker has not confirmed in time.

    Example: mileage reload --admin http://127.0.0.1:8081
    """
    answer = call_admin(admin, "/api/v1/config/reload", token_file)
    if answer.status not in (200, 422):
        raise MileageError(f"{admin} answered {answer.status}: {admin_error(answer).message}")
    if as_json:
        typer.echo(answer.body.decode())
    if answer.status == 422:
        typer.echo(f"mileage: not reloaded: {admin_error(answer).message}", err=True)
        raise typer.Exit(2)
    reloaded = msgspec.json.decode(answer.body, type=Reloaded)
    if not as_json:
        _show(reloaded)
    if reloaded.unconfirmed:
        raise typer.Exit(1)


def _show(reloaded: Reloaded) -> None:
    typer.echo(f"version         {reloaded.version}")
    applied = [key for key in reloaded.changed if key not in reloaded.restart_needed]
    typer.echo(f"changed         {', '.join(applied) or 'nothing'}")
    if reloaded.restart_needed:
        typer.echo(f"restart needed  {', '.join(reloaded.restart_needed)}")
    typer.echo(f"applied by      {_workers(reloaded.applied_by)}")
    if reloaded.unconfirmed:
        typer.echo(f"not confirmed   {_workers(reloaded.unconfirmed)}", err=True)


def _workers(pids: list[int]) -> str:
    if not pids:
        return "no worker"
    return f"{len(pids)} worker{'s' if len(pids) > 1 else ''} (pid {', '.join(map(str, pids))})"
