"""`mileage keys`: API keys for tenants."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from mileage.cli.config import Config
from mileage.cli.key_file import KeyFile, key_entry
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.gateway.config import TenantConfig
from mileage.gateway.keys import KEY_PREFIX, key_hash, new_key

__all__ = ["keys"]

_SHOWN_DIGITS = 12
_PREFIX_DIGITS_MIN = 8
_HASH = "sha256:"

keys = typer.Typer(help="API keys for tenants.", no_args_is_help=True)

_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_File = Annotated[Path, typer.Option("--config", help="The mileage.toml with the tenants.")]


@keys.callback()
def _keys() -> None:
    """API keys for tenants."""


@keys.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Name of the tenant: letters, digits, - and _.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="The mileage.toml to write the key's hash into.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="What the key is for (ci, notebook): costs can be told apart by it."
        ),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Make a key for a tenant. It is shown once; the configuration keeps only its hash.

    With --config the hash is written into that file, whose comments and layout stay; a running
    gateway takes the key over from there. Without, the lines to add are printed.

    Example: mileage keys create team-a --config mileage.toml
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tenant):
        raise ConfigError("tenant", tenant, "1 to 64 letters, digits, - or _")
    if name is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ConfigError("--name", name, "1 to 64 letters, digits, - . or _")
    key = new_key()
    digest = key_hash(key)
    first = False
    if config is not None:
        file = KeyFile(config)
        first = not file.config().key_hashes
        file.add(tenant, digest, name)
    if as_json:
        made: dict[str, Any] = {"tenant": tenant, "key": key, "key_hash": digest, "name": name}
        if config is not None:
            made["config"] = str(config)
        typer.echo(json.dumps(made))
        return
    typer.echo(f"key (shown only now):  {key}\n")
    if config is None:
        typer.echo("add to mileage.toml:\n")
        typer.echo(f'[tenants.{tenant}]\nkey_hashes = ["{key_entry(digest, name)}"]')
        return
    typer.echo(f"written to {config}: {_short(digest)} of {tenant}")
    if first:
        typer.echo("It is the first key there: from now on every request needs one.")


@keys.command("list")
def list_keys(config: _File, as_json: _AsJson = False) -> None:
    """Show the tenants, the hashes of their keys, and what they may use.

    Example: mileage keys list --config mileage.toml
    """
    tenants = KeyFile(config).config().tenants
    if as_json:
        rows = [_row(name, tenant) for name, tenant in tenants.items()]
        typer.echo(msgspec.json.encode({"config": str(config), "tenants": rows}))
        return
    console = wide_console(highlight=True)
    if not tenants:
        console.print("no tenants")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("tenant", "keys", "priority", "weight", "limits", "budgets"):
        table.add_column(name)
    for name, tenant in tenants.items():
        cells = (
            name,
            "\n".join(f"{_short(d)} {n or ''}".rstrip() for d, n in tenant.keys.items()) or "-",
            tenant.priority,
            f"{tenant.weight:g}",
            "\n".join(_limits(tenant)) or "-",
            "\n".join(f"{b.amount:.12g} {b.unit} per {b.per}" for b in tenant.budgets) or "-",
        )
        table.add_row(*map(_cell, cells))
    console.print(table)


@keys.command()
def revoke(
    config: _File,
    hash_prefix: Annotated[
        str | None,
        typer.Argument(
            help="Begin of the key's hash, as `mileage keys list` shows it. Without, the key is "
            "asked for, or read from standard input: it does not belong into a command line."
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Also the last key: no request needs one then.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Take a key out of the configuration; a running gateway refuses it from then on.

    Example: mileage keys revoke 3f9a1c204b7e --config mileage.toml
    """
    file = KeyFile(config)
    found = file.config()
    tenant, digest = _found(found, hash_prefix)
    if len(found.key_hashes) == 1 and not last:
        expected = "a key that is not the last: without any, no request needs one (--last does it)"
        raise ConfigError("key", _short(digest), expected)
    file.remove(tenant, digest)
    if as_json:
        revoked = {"tenant": tenant, "key_hash": digest, "config": str(config)}
        typer.echo(json.dumps(revoked))
        return
    typer.echo(f"revoked in {config}: {_short(digest)} of {tenant}")
    if len(found.key_hashes) == 1:
        typer.echo("It was the last key there: no request needs one now.")


def _found(config: Config, prefix: str | None) -> tuple[str, str]:
    """Tenant and hash of the one key that is meant."""
    if prefix is None:
        digest = key_hash(_read_key())
        if digest not in config.key_hashes:
            raise ConfigError("key", _short(digest), "a key of the configuration")
        return config.key_hashes[digest], digest
    if prefix.startswith(KEY_PREFIX):
        # What was typed stays in the shell's history: it is not repeated here.
        expected = "the begin of a hash; give a key on standard input (and revoke it: it was shown)"
        raise ConfigError("hash_prefix", "(a key)", expected)
    digits = prefix.removeprefix(_HASH).lower()
    if not re.fullmatch(rf"[0-9a-f]{{{_PREFIX_DIGITS_MIN},64}}", digits):
        expected = f"at least {_PREFIX_DIGITS_MIN} hex digits of a key's hash"
        raise ConfigError("hash_prefix", prefix, expected)
    matching = [digest for digest in config.key_hashes if digest.startswith(_HASH + digits)]
    if len(matching) != 1:
        expected = "the begin of one key's hash" + (f", not of {len(matching)}" if matching else "")
        raise ConfigError("hash_prefix", prefix, expected)
    return config.key_hashes[matching[0]], matching[0]


def _read_key() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("key", hide_input=True)).strip()
    return sys.stdin.readline().strip()


def _short(digest: str) -> str:
    return digest[: len(_HASH) + _SHOWN_DIGITS]


def _limits(tenant: TenantConfig) -> list[str]:
    figures = {
        "requests/min": tenant.requests_per_min,
        "tokens/min": tenant.tokens_per_min,
        "at once": tenant.concurrency_max,
    }
    return [f"{value:.12g} {name}" for name, value in figures.items() if value is not None]


def _row(name: str, tenant: TenantConfig) -> dict[str, Any]:
    fields = msgspec.structs.asdict(tenant)
    del fields["key_hashes"]
    return {
        "tenant": name,
        "keys": [_short(digest) for digest in tenant.keys],
        "key_names": list(tenant.keys.values()),
        **fields,
    }


def _cell(text: str) -> Text:
    return Text("\n").join(safe_text(line) for line in text.split("\n"))
