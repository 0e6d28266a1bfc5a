"""The commands by name, each loaded only where it is asked for: all of them take a second."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from mileage import __version__

__all__ = ["COMMANDS", "asked_for", "command_line"]

COMMANDS: Final = (
    *("serve", "reload", "requests", "replay", "roofline", "bench", "cost", "deploy"),
    *("doctor", "engine", "explain", "experiment", "keys", "plan", "quant", "simulate", "trace"),
)
"""In the order in which help lists them; NAME is NAME of the module mileage.cli.NAME: a Typer, or a
function that is one command."""


def asked_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """The commands that the command line needs: the one that its first argument names, or all,
    which help and a name that there is not need."""
    first = arguments[0] if arguments else None
    if first == "--version":
        return ()
    return COMMANDS if first is None or first not in COMMANDS else (first,)


def command_line(names: Collection[str] = COMMANDS) -> typer.Typer:
    """The `mileage` command with these subcommands."""
    app = typer.Typer(
        name="mileage",
        help="More tokens per GPU-dollar from self-hosted LLM inference, within the latency"
        " targets.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in COMMANDS:
        if name in names:
            command = getattr(import_module(f"mileage.cli.{name}"), name)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name=name)(command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """More tokens per GPU-dollar from self-hosted LLM inference, within the latency targets."""
