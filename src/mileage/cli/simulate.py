"""`mileage simulate`: what a trace would have met on some GPUs, under some policy."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from mileage.cli.html_report import check_report
from mileage.cli.simulate_arguments import (
    CapacityArguments,
    CompareArguments,
    OneRunArguments,
    RunArguments,
    taking,
)
from mileage.cli.simulate_cache import cache
from mileage.cli.simulate_capacity import Goal, capacity_of, impossible
from mileage.cli.simulate_document import capacity_document, comparison_document, run_document
from mileage.cli.simulate_fit import fit
from mileage.cli.simulate_html import write_report
from mileage.cli.simulate_run import ArmRun, run_arm
from mileage.cli.simulate_scenario import Scenario, scenario_of
from mileage.cli.simulate_steps import step_file
from mileage.cli.simulate_tables import show_capacity, show_comparison, show_run
from mileage.cli.simulate_workload import Workload, workload
from mileage.cli.usage import show_usage
from mileage.core.errors import ConfigError

__all__ = ["simulate"]

simulate = typer.Typer(rich_markup_mode=None)


@simulate.callback(invoke_without_command=True)
@taking(OneRunArguments)
def run(context: typer.Context, arguments: OneRunArguments) -> None:
    """Simulate a trace on a fleet that the gateway's own controller governs.

    Prints latencies, the share of requests that met their targets, cost and utilisation.

    Example: mileage simulate --trace synthetic:rate=8,duration=10m --model llama-3.1-8b --gpu h100
    --slo ttft=2s,itl=60ms

    What each step of the engines computed, of which request: --steps steps.msgpack

    With features of its engines: --engine-option speculation.draft_tokens=3, or --engine-option
    disaggregation.decode_engines=2; with replicas that come and go: --replicas 4 --schedule
    0s:1,10m:4 --cold-start 90s
    """
    if context.invoked_subcommand is not None:
        for option in context.command.params:
            if option.name is not None and _is_given(context, option.name):
                value, command = context.params[option.name], context.invoked_subcommand
                raise ConfigError(option.opts[0], value, f"it behind `{command}`")
        return
    if arguments.trace is None and arguments.model is None:
        show_usage(context, "--trace", as_json=arguments.as_json)
    check_report(arguments.report)
    scenario = scenario_of(arguments)
    console = Console(stderr=True, highlight=False)
    with (
        step_file(arguments.steps, arguments.path) as watcher,
        workload(arguments, console, once=True) as work,
    ):
        done = run_arm(
            scenario,
            scenario.arms[0],
            work,
            console,
            rate_scale=arguments.rate_scale,
            watcher=watcher,
        )
    _report(arguments, scenario, work, [done])
    if arguments.as_json:
        typer.echo(run_document(scenario, work, done))
    else:
        show_run(scenario, work, done)


@simulate.command()
@taking(CompareArguments)
def compare(context: typer.Context, arguments: CompareArguments) -> None:
    """Simulate one trace under several policies, or on several GPUs, side by side.

    Each policy is run on each GPU with each --tp. The best and the worst of every figure are
    marked.

    Example: mileage simulate compare --trace synthetic:rate=30,duration=10m --model llama-3.1-8b
    --gpu h100 --slo ttft=2s,itl=60ms --policy off,static:64,model

    What a feature is worth: --policy off --variant 'static static_batch.size=8' --variant
    'contiguous kv_layout=contiguous context_tokens_max=8192'
    """
    check_report(arguments.report)
    scenario = scenario_of(arguments, several=True)
    console = Console(stderr=True, highlight=False)
    with workload(arguments, console, once=False) as work:
        runs = [
            run_arm(scenario, arm, work, console, rate_scale=arguments.rate_scale)
            for arm in scenario.arms
        ]
    _report(arguments, scenario, work, runs)
    if arguments.as_json:
        typer.echo(comparison_document(scenario, work, runs))
    else:
        show_comparison(scenario, work, runs)


@simulate.command()
@taking(CapacityArguments)
def capacity(context: typer.Context, arguments: CapacityArguments) -> None:
    """Find the highest rate of a trace that a fleet serves within the targets.

    The rate is searched by bisection, in simulations of the whole trace. Exits with 3 where no
    rate was too high: the trace is too short for that fleet.

    Example: mileage simulate capacity --trace azure-conv-2023 --model llama-3.1-8b --gpu h100
    --slo ttft=2s,itl=60ms --policy off,model
    """
    goal = Goal(
        attainment=arguments.attainment,
        decile_min=arguments.decile_min,
        tolerance=arguments.tolerance,
    )
    check_report(arguments.report)
    scenario = scenario_of(arguments, several=True, needs_slo=True)
    console = Console(stderr=True, highlight=False)
    with workload(arguments, console, once=False) as work:
        found = [
            capacity_of(scenario, arm, work, console, goal=goal, start=arguments.rate_scale)
            for arm in scenario.arms
        ]
    if all(each.light is not None for each in found):
        raise impossible(scenario, goal, found)
    _report(arguments, scenario, work, [each.run for each in found if each.run is not None])
    if arguments.as_json:
        typer.echo(capacity_document(scenario, work, goal, found))
    else:
        show_capacity(scenario, work, goal, found)
    if any(each.unbounded for each in found):
        typer.echo("mileage: no rate was too high: simulate a longer trace", err=True)
        raise typer.Exit(3)


simulate.command()(cache)
simulate.command()(fit)


def _report(
    arguments: RunArguments, scenario: Scenario, work: Workload, runs: Sequence[ArmRun]
) -> None:
    if arguments.report is not None and runs:
        write_report(arguments.report, scenario, work, runs)
        typer.echo(f"wrote {arguments.report}", err=True)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
