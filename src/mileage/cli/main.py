"""The `mileage` command: registers the subcommands and maps errors to exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mileage import __version__
from mileage.cli.keys import keys
from mileage.cli.reload import reload
from mileage.cli.replay import replay
from mileage.cli.requests import requests
from mileage.cli.roofline import roofline
from mileage.cli.serve import serve
from mileage.cli.simulate import simulate
from mileage.cli.told_stdout import tell_of_stdout
from mileage.cli.trace import trace
from mileage.core.errors import ConfigError, MileageError, TraceError

__all__ = ["app", "main"]

app = typer.Typer(
    name="mileage",
    help="More tokens per GPU-dollar from self-hosted LLM inference, within the latency targets.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(reload)
app.command()(requests)
app.command()(replay)
app.command()(roofline)
app.add_typer(keys, name="keys")
app.add_typer(simulate, name="simulate")
app.add_typer(trace, name="trace")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """More tokens per GPU-dollar from self-hosted LLM inference, within the latency targets."""


def main() -> None:
    """Run the command line; errors of ours become a line on stderr and an exit code."""
    tell_of_stdout()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here it can still be told that it failed
    except BrokenPipeError:
        sys.exit(1)  # whoever reads has enough: nothing to tell
    except (ConfigError, TraceError) as error:
        typer.echo(f"mileage: {error}", err=True)
        sys.exit(2)
    except MileageError as error:
        typer.echo(f"mileage: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
