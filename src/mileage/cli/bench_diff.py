"""`mileage bench diff`: two saved runs side by side, what differs between them, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.bench_diff_document import diff_document, diff_exit_code
from mileage.cli.bench_diff_tables import show_diff
from mileage.cli.bench_document import encoded
from mileage.cli.simulate_arguments import taking
from mileage.loadgen.saved_run import read_run

__all__ = ["register_diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffArguments:
    """Of `mileage bench diff`."""

    a: Annotated[Path, typer.Argument(metavar="A", help="A run that --save wrote: before.")]
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one: after.")]
    slo: Annotated[
        str | None,
        typer.Option(help="Latency targets that both are judged by. [default: those of A's run]"),
    ] = None
    seed: Annotated[int, typer.Option(help="Of the resampling that intervals are made of.")] = 0
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


@taking(DiffArguments)
def diff(context: typer.Context, arguments: DiffArguments) -> None:
    """Compare two saved runs: figures, ratios with 95 % intervals, and what else differs.

    Runs apart in time are weaker evidence than `mileage bench ab`, which interleaves them. Exits
    with 1 where B is worse in something that decides, with 3 where there is no verdict.

    Example: mileage bench diff before.mlrun after.mlrun
    """
    runs = read_run(arguments.a), read_run(arguments.b)
    names = str(arguments.a), str(arguments.b)
    document = diff_document(*runs, names=names, slo=arguments.slo, seed=arguments.seed)
    if arguments.as_json:
        typer.echo(encoded(document))
    else:
        show_diff(document)
    if code := diff_exit_code(document):
        raise typer.Exit(code)


def register_diff(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command()(diff)
