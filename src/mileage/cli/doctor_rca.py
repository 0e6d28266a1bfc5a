"""`mileage doctor rca`: what went wrong first over hours, and what that brought about."""

from __future__ import annotations

from typing import Final

import typer

from mileage.cli.bench_document import encoded
from mileage.cli.doctor_rca_arguments import RcaArguments
from mileage.cli.doctor_rca_document import rca_document
from mileage.cli.doctor_rca_source import gathered_history
from mileage.cli.doctor_rca_tables import show_analysis
from mileage.cli.html_report import check_report, write_page
from mileage.cli.simulate_arguments import taking
from mileage.doctor.rca.analyse import analyse

__all__ = ["register_rca"]

_CODES: Final = {"clear": 0, "finding": 1, "not_enough_evidence": 3}


def register_rca(doctor: typer.Typer) -> None:
    """Makes it a subcommand of `mileage doctor`."""
    doctor.command("rca")(rca)


@taking(RcaArguments)
def rca(context: typer.Context, arguments: RcaArguments) -> None:
    """Find what went wrong first over the last hours, and what that brought about.

    Reads the gateway's own record: requests, replicas, GPUs and configurations. With pip install
    'mileage[rca]' it also uses STL and an isolation forest. Exits with 0 where nothing is unusual,
    with 1 where something is, with 3 where too little is on record.

    Example: mileage doctor rca --since 6h

    From a file: mileage doctor rca --series history.json --html monday.html
    """
    check_report(arguments.html, "--html")
    history = gathered_history(arguments)
    analysis = analyse(history, seed=arguments.seed)
    if arguments.html is not None:
        from mileage.cli.doctor_rca_html import rca_html

        write_page(arguments.html, rca_html(analysis, history), "--html")
    if arguments.as_json:
        typer.echo(encoded(rca_document(analysis, history)))
    else:
        show_analysis(analysis, history)
    if code := _CODES[analysis.verdict]:
        raise typer.Exit(code)
