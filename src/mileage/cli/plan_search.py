"""`mileage plan`: finds the cheapest set-up that meets the targets on a trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mileage.cli.html_report import check_report
from mileage.cli.plan_arguments import PlanArguments
from mileage.cli.plan_document import plan_document
from mileage.cli.plan_html import write_plan
from mileage.cli.plan_ray import ray_workers
from mileage.cli.plan_setup import PlanSetup, setup_of, with_traffic, workload_arguments
from mileage.cli.plan_tables import show_plan
from mileage.cli.plan_workers import OnDone, cores, workers
from mileage.cli.simulate_workload import workload
from mileage.core.errors import ConfigError
from mileage.planner.evaluator import Evaluator
from mileage.planner.plan import Plan, make_plan
from mileage.planner.search import Evaluate
from mileage.planner.traffic import Traffic
from mileage.planner.windows import rungs

__all__ = ["NOTHING_KEEPS", "search_plan"]

NOTHING_KEEPS = 1
"""Exit code: no set-up keeps the targets."""
_WORTH_PROCESSES = 20_000
"""Requests, of all simulations of the first round: fewer are done before a process is there."""


def search_plan(arguments: PlanArguments) -> None:
    """Search, tell, and exit with 1 where nothing keeps the targets. Raises ConfigError."""
    check_report(arguments.report)
    setup = setup_of(arguments)
    console = Console(stderr=True, highlight=False)
    with workload(workload_arguments(arguments), console, once=False) as work:
        traffic = Traffic.of(work.at(arguments.rate_scale))
    setup = with_traffic(setup, traffic)
    started_s = time.perf_counter()
    plan = _searched(arguments, setup, traffic, console)
    wall_s = time.perf_counter() - started_s
    document = plan_document(arguments, setup, traffic, plan, wall_s)
    if arguments.report is not None:
        write_plan(arguments.report, document, plan)
        typer.echo(f"wrote {arguments.report}", err=True)
    if arguments.as_json:
        typer.echo(msgspec.json.encode(document))
    else:
        show_plan(document)
    if plan.picks["cheapest"] is None:
        raise typer.Exit(NOTHING_KEEPS)


def _searched(
    arguments: PlanArguments, setup: PlanSetup, traffic: Traffic, console: Console
) -> Plan:
    evaluator = Evaluator(setup.builder, traffic, setup.world)
    with (
        _bar(console) as on_done,
        _workers(arguments, setup, evaluator, on_done) as evaluate,
    ):
        plan = make_plan(
            setup.space,
            setup.builder,
            traffic,
            setup.world,
            evaluate,
            price_sources=setup.price_sources,
        )
    if not plan.candidates:
        example = plan.impossible[0].example if plan.impossible else "no replica is that small"
        raise ConfigError("--gpu", arguments.gpu, f"GPUs that the model can run on: {example}")
    return plan


def _workers(
    arguments: PlanArguments, setup: PlanSetup, evaluator: Evaluator, on_done: OnDone
) -> AbstractContextManager[Evaluate]:
    where, _, address = arguments.on.partition("=")
    if where == "ray":
        return ray_workers(evaluator, address or None, on_done)
    if arguments.on != "cores":
        raise ConfigError("--on", arguments.on, "cores, ray, or ray=ADDRESS of a cluster")
    return workers(evaluator, _processes(arguments, setup, evaluator.traffic), on_done)


def _processes(arguments: PlanArguments, setup: PlanSetup, traffic: Traffic) -> int:
    if arguments.processes is not None:
        return arguments.processes
    first = rungs(traffic)[0]
    requests = (first.stop - first.start) * len(setup.space.explore(setup.builder).candidates)
    return cores() if requests >= _WORTH_PROCESSES else 1


@contextmanager
def _bar(console: Console) -> Iterator[OnDone]:
    """A bar for each round, on a terminal; elsewhere nothing."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("simulating", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
