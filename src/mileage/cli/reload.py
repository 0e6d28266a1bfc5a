"""`mileage reload`: have a running gateway read its configuration again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from mileage.cli.config import state_directory
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.config import check_token
from mileage.gateway.admin.reload import Reloaded
from mileage.wire.fetch import FetchResponse, fetch

__all__ = ["reload"]

_TIMEOUT_S = 30.0
_TOKEN_VARIABLE = "MILEAGE_ADMIN_TOKEN"  # noqa: S105 -- the name of it


class _Error(msgspec.Struct):
    message: str
    code: str
    param: str | None = None


class _Refusal(msgspec.Struct):
    error: _Error


def reload(
    admin: Annotated[
        str, typer.Option(help="The gateway's admin plane.")
    ] = "http://127.0.0.1:8081",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the admin token. Without it: MILEAGE_ADMIN_TOKEN, else the file that "
            "the gateway of this user has made."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Have a running gateway read its configuration again and apply what is hot.

    Prints the version that is in force, what has changed, and which keys need a restart. A
    configuration that is not in order changes nothing: its error is printed, with exit code 2.
    Exit code 1: the gateway cannot be asked, or a worker has not confirmed in time.

    Example: mileage reload --admin http://127.0.0.1:8081
    """
    answer = asyncio.run(_ask(admin, _token(token_file)))
    if answer.status not in (200, 422):
        raise MileageError(f"{admin} answered {answer.status}: {_refusal(answer).message}")
    if as_json:
        typer.echo(answer.body.decode())
    if answer.status == 422:
        typer.echo(f"mileage: not reloaded: {_refusal(answer).message}", err=True)
        raise typer.Exit(2)
    reloaded = msgspec.json.decode(answer.body, type=Reloaded)
    if not as_json:
        _show(reloaded)
    if reloaded.unconfirmed:
        raise typer.Exit(1)


async def _ask(admin: str, token: str) -> FetchResponse:
    return await fetch(
        f"{admin.rstrip('/')}/api/v1/config/reload",
        method="POST",
        headers=(("authorization", f"Bearer {token}"),),
        timeout_s=_TIMEOUT_S,
    )


def _token(path: Path | None) -> str:
    if path is None and (token := os.environ.get(_TOKEN_VARIABLE)) is not None:
        return check_token(_TOKEN_VARIABLE, token)
    path = path or state_directory() / "admin-token"
    try:
        return check_token("--token-file", path.read_text("ascii").strip())
    except OSError as error:
        expected = f"a readable file with the admin token ({error.strerror})"
    except UnicodeDecodeError:
        expected = "a file with the admin token"
    raise ConfigError("--token-file", str(path), expected)


def _refusal(answer: FetchResponse) -> _Error:
    try:
        return msgspec.json.decode(answer.body, type=_Refusal).error
    except msgspec.DecodeError:
        return _Error("is this a Mileage admin plane?", "unknown")


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
