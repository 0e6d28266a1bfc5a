"""`mileage engine lora`: the LoRA adapters of a running gateway: which are loaded, and where."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer
from rich.table import Table

from mileage.cli.admin_call import Admin, TokenFile, admin_error, call_admin
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import MileageError
from mileage.gateway.adapter_state import AdapterState, AdapterStates

__all__ = ["lora"]

lora = typer.Typer(
    help="LoRA adapters of a running gateway: list, load, unload, pin.", no_args_is_help=True
)

_ADMIN = "http://127.0.0.1:8081"
_PATH = "/api/v1/adapters"
_LOOK_S = 0.2
_Name = Annotated[str, typer.Argument(help="Name of the adapter, as in [[adapters]].")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Wait = Annotated[
    float, typer.Option("--wait", min=0.0, help="Seconds to wait until it is done; 0: do not wait.")
]


@lora.callback()
def _lora() -> None:
    """LoRA adapters of a running gateway: list, load, unload, pin."""


@lora.command("list")
def list_(admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False) -> None:
    """All adapters: where each is loaded, how much it is wanted, what waits for it.

    Example: mileage engine lora list --json
    """
    _show(_states(admin, token_file), as_json=as_json)


@lora.command()
def load(
    name: _Name,
    wait: _Wait = 60.0,
    admin: Admin = _ADMIN,
    token_file: TokenFile = None,
    as_json: _AsJson = False,
) -> None:
    """Load an adapter before anybody asks for it.

    Exit code 1: it could not be loaded, or not within --wait; the reason is printed.

    Example: mileage engine lora load summaries
    """
    found = _ask(name, "load", admin, token_file)
    deadline_s = time.monotonic() + wait
    while not _one(found, name).resident and time.monotonic() < deadline_s:
        if (why := _one(found, name).error) is not None:
            raise MileageError(f"{name} could not be loaded: {why}")
        time.sleep(_LOOK_S)
        found = _states(admin, token_file)
    _show(found, as_json=as_json)
    if wait > 0 and not _one(found, name).resident:
        raise MileageError(f"{name} was not loaded within {wait:g} s")


@lora.command()
def unload(
    name: _Name,
    wait: _Wait = 60.0,
    admin: Admin = _ADMIN,
    token_file: TokenFile = None,
    as_json: _AsJson = False,
) -> None:
    """Unload an adapter everywhere, and unpin it; the next request for it loads it again.

    Exit code 1: it is still there after --wait.

    Example: mileage engine lora unload summaries
    """
    found = _ask(name, "unload", admin, token_file)
    deadline_s = time.monotonic() + wait
    while _one(found, name).resident and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
        found = _states(admin, token_file)
    _show(found, as_json=as_json)
    if wait > 0 and _one(found, name).resident:
        raise MileageError(f"{name} was not unloaded within {wait:g} s")


@lora.command()
def pin(
    name: _Name, admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False
) -> None:
    """Keep an adapter loaded on every replica of its base model, until the gateway ends.

    Example: mileage engine lora pin summaries
    """
    _show(_ask(name, "pin", admin, token_file), as_json=as_json)


@lora.command()
def unpin(
    name: _Name, admin: Admin = _ADMIN, token_file: TokenFile = None, as_json: _AsJson = False
) -> None:
    """Let an adapter go again where another one needs its slot.

    Example: mileage engine lora unpin summaries
    """
    _show(_ask(name, "unpin", admin, token_file), as_json=as_json)


def _ask(name: str, what: str, admin: str, token_file: Path | None) -> AdapterStates:
    answer = call_admin(admin, f"{_PATH}/{quote(name)}/{what}", token_file)
    if answer.status == 404:
        typer.echo(f"mileage: {admin_error(answer).message}", err=True)
        raise typer.Exit(2)
    if answer.status != 202:
        raise MileageError(f"{admin} answered {answer.status}: {admin_error(answer).message}")
    return msgspec.json.decode(answer.body, type=AdapterStates)


def _states(admin: str, token_file: Path | None) -> AdapterStates:
    answer = call_admin(admin, _PATH, token_file, method="GET")
    if answer.status != 200:
        raise MileageError(f"{admin} answered {answer.status}: {admin_error(answer).message}")
    return msgspec.json.decode(answer.body, type=AdapterStates)


def _one(found: AdapterStates, name: str) -> AdapterState:
    adapter = next((each for each in found.adapters if each.name == name), None)
    if adapter is None:
        raise MileageError(f"{name} is not configured any more")
    return adapter


def _show(found: AdapterStates, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    if not found.adapters:
        typer.echo("This gateway has no adapters: see [[adapters]].")
        return
    console = wide_console()
    table = Table("adapter", "base", "loaded on", "uses lately", "waiting", "", box=None)
    for each in found.adapters:
        note = "pinned" if each.pinned else ""
        table.add_row(
            safe_text(each.name),
            safe_text(each.base),
            safe_text(", ".join(each.resident) or "-"),
            f"{each.heat:.1f}",
            str(each.waiting),
            safe_text(f"{note} {each.error or ''}".strip()),
        )
    console.print(table)
    for place in found.replicas:
        took = "" if place.load_s is None else f", a load takes {place.load_s:.2f} s"
        state = "" if place.up else ", down"
        console.print(
            safe_text(f"{place.replica}: {len(place.resident)} of {place.slots} slots{took}{state}")
        )
