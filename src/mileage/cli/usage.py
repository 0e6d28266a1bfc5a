"""show_usage(): how a command is used, where something that it needs was not given."""

from __future__ import annotations

from typing import NoReturn

import typer

from mileage.core.errors import ConfigError

__all__ = ["show_usage"]


def show_usage(context: typer.Context, missing: str, *, as_json: bool) -> NoReturn:
    """Ends the command with 2: with its help on standard output, or with --json, where there is to
    be a document, as an error of `missing`."""
    if as_json:
        raise ConfigError(missing, None, f"a value: see {context.command_path} --help")
    typer.echo(context.get_help())
    raise typer.Exit(2)
