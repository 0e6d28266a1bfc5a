"""`mileage engine models|sleep|wake`: models that sleep when nobody uses them."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
import typer
from rich.table import Table

from mileage.cli.admin_call import Admin, TokenFile, admin_error, call_admin
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.model_seat import ModelStatus

__all__ = ["models", "sleep", "wake"]

_ADMIN = "http://127.0.0.1:8081"
_PATH = "/api/v1/models"
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Name = Annotated[str, typer.Argument(metavar="MODEL", help="A model, or the replica's name.")]


class _Models(msgspec.Struct):
    models: list[ModelStatus]


def models(admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False) -> None:
    """Models that can sleep: which are loaded, since when, and what they take.

    Exit code 1: the gateway cannot be asked.

    Example: mileage engine models
    """
    body = _ask("", admin, token_file, "GET")
    if as_json:
        typer.echo(body.decode())
        return
    found = msgspec.json.decode(body, type=_Models).models
    if not found:
        typer.echo(
            "No model of this gateway can sleep: see [[models]], and sleep_level of engines."
        )
        return
    table = Table(box=None, pad_edge=False)
    for title in ("model", "state", "for", "memory", "waiting", "sleeps in", "loads", "reason"):
        table.add_column(title, justify="left" if title in ("model", "reason") else "right")
    for each in found:
        table.add_row(
            safe_text(", ".join(each.models) or each.replica),
            each.state,
            _duration(each.since_s),
            "-" if each.memory_bytes is None else f"{each.memory_bytes / 2**20:.0f} MiB",
            str(each.waiting),
            "-" if each.sleeps_in_s is None else _duration(each.sleeps_in_s),
            str(each.loads_total),
            safe_text(each.reason or ""),
        )
    wide_console().print(table)


def sleep(
    name: _Name, admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False
) -> None:
    """Unload a model now, or put it to sleep; a request for it wakes it again.

    Exit code 1: it has requests, or the gateway cannot be asked; 2: no such model.

    Example: mileage engine sleep smollm2
    """
    _told(_ask(f"/{quote(name)}/sleep", admin, token_file, "POST", name), as_json=as_json)


def wake(
    name: _Name, admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False
) -> None:
    """Load a model now, ahead of the first request for it.

    Exit code 1: the gateway cannot be asked; 2: no such model.

    Example: mileage engine wake smollm2
    """
    _told(_ask(f"/{quote(name)}/wake", admin, token_file, "POST", name), as_json=as_json)


def _ask(
    path: str, admin: str, token_file: TokenFile, method: Literal["GET", "POST"], name: str = ""
) -> bytes:
    answer = call_admin(admin, f"{_PATH}{path}", token_file, method=method)
    if answer.status < 300:
        return answer.body
    said = admin_error(answer)
    if said.code == "model_not_found":
        raise ConfigError("MODEL", name, "a model that `mileage engine models` lists")
    raise MileageError(f"the gateway answered {answer.status}: {said.message}")


def _told(body: bytes, *, as_json: bool) -> None:
    if as_json:
        typer.echo(body.decode())
        return
    found = msgspec.json.decode(body, type=ModelStatus)
    reason = f" ({found.reason})" if found.reason else ""
    wide_console().print(f"{found.replica}: {found.state}{safe_text(reason)}")


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"
