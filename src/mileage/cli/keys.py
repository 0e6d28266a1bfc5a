"""`mileage keys`: API keys for tenants."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from mileage.core.errors import ConfigError
from mileage.gateway.keys import key_hash, new_key

__all__ = ["keys"]

keys = typer.Typer(help="API keys for tenants.", no_args_is_help=True)


@keys.callback()
def _keys() -> None:
    """API keys for tenants."""


@keys.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Name of the tenant: letters, digits, - and _.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Make a key for a tenant. It is shown once; the configuration keeps only its hash.

    Example: mileage keys create team-a
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tenant):
        raise ConfigError("tenant", tenant, "1 to 64 letters, digits, - or _")
    key = new_key()
    digest = key_hash(key)
    if as_json:
        typer.echo(json.dumps({"tenant": tenant, "key": key, "key_hash": digest}))
        return
    typer.echo(f"key (shown only now):  {key}\n")
    typer.echo("add to mileage.toml:\n")
    typer.echo(f'[tenants.{tenant}]\nkey_hashes = ["{digest}"]')
