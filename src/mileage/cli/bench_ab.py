"""`mileage bench ab`: two endpoints, or two settings of one, compared with confidence."""

from __future__ import annotations

import typer
import uvloop
from rich.console import Console

from mileage.cli.bench_ab_arguments import AbArguments
from mileage.cli.bench_ab_document import ab_document, ab_exit_code
from mileage.cli.bench_ab_html import write_ab
from mileage.cli.bench_ab_plan import AbPlan, ab_plan
from mileage.cli.bench_ab_run import AbRun, run_ab
from mileage.cli.bench_ab_save import arm_path, save_arms
from mileage.cli.bench_ab_tables import show_ab
from mileage.cli.bench_document import encoded
from mileage.cli.bench_workload import workload_of
from mileage.cli.html_report import check_report
from mileage.cli.simulate_arguments import taking
from mileage.cli.whole_file import check_place

__all__ = ["register_ab"]


def register_ab(group: typer.Typer) -> None:
    """Register `ab` with the group."""
    group.command(name="ab")(ab)


@taking(AbArguments)
def ab(context: typer.Context, arguments: AbArguments) -> None:
    """Compare two endpoints, or two settings of one: better, worse, no difference, or no verdict.

    The arms take turns in slots of some seconds, with the same requests in both slots of a pair.
    The run is looked at as it goes, and ends when it has told all, at a chance of --alpha to be
    wrong over all looks. Exits with 0 where b is better or no change of --effect would have been
    missed, with 1 where it is worse, with 3 where there is no verdict or too little was seen.

    Two endpoints: mileage bench ab http://gpu1:8000 http://gpu2:8000 --rate 8

    Two settings of a Mileage gateway: mileage bench ab http://127.0.0.1:8080 --rate 4
    --set-a governor.mode=off --set-b governor.mode=act

    By commands: mileage bench ab http://127.0.0.1:8000 --rate 4 --command-a './start.sh 128'
    --command-b './start.sh 256'

    Users' own traffic, split in the gateway: section [experiment] of its configuration.
    """
    plan = ab_plan(arguments)
    check_report(arguments.report)
    if arguments.save is not None:
        for arm in ("a", "b"):
            check_place(arm_path(arguments.save, arm), key="--save")
    workload = workload_of(arguments, Console(stderr=True, highlight=False))
    run = uvloop.run(run_ab(arguments, plan, workload))
    code = _tell(arguments, plan, run)
    if code:
        raise typer.Exit(code)


def _tell(arguments: AbArguments, plan: AbPlan, run: AbRun) -> int:
    document = ab_document(plan, run)
    if arguments.save is not None:
        save_arms(arguments.save, run, document)
        typer.echo(
            f"wrote {arm_path(arguments.save, 'a')} and {arm_path(arguments.save, 'b')}", err=True
        )
    if arguments.report is not None:
        write_ab(arguments.report, document)
        typer.echo(f"wrote {arguments.report}", err=True)
    if arguments.as_json:
        typer.echo(encoded(document))
    else:
        show_ab(document)
    return ab_exit_code(document)
