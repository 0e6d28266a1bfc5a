"""What `mileage simulate` shows to people: a table of figures, and one line that says it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.simulate_capacity import Capacity, Goal
from mileage.cli.simulate_figures import (
    BEST,
    WORST,
    Figure,
    figures_shown,
    marks,
    worst_decile,
)
from mileage.cli.simulate_fitted import beyond_seen
from mileage.cli.simulate_format import count, percent, rate, seconds, usd
from mileage.cli.simulate_intervals import interval_lines
from mileage.cli.simulate_lines import (
    capacity_line,
    comparison_line,
    engine_line,
    fleet_line,
    offered_rps,
    path_note,
    policy_line,
    targets_line,
    trace_line,
    verdict_line,
    workload_line,
)
from mileage.cli.simulate_run import ArmRun
from mileage.cli.simulate_scenario import Scenario
from mileage.cli.simulate_workload import Workload
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.sim.summary import Quantiles, Summary

__all__ = ["show_capacity", "show_comparison", "show_run"]

_SEVERAL_PER_EVENT: Final = 1.005


def show_run(scenario: Scenario, work: Workload, run: ArmRun) -> None:
    """One simulation, for people."""
    console = wide_console()
    console.print(Text.assemble(("Fleet   ", "bold"), safe_text(fleet_line(run))))
    if (besides := engine_line(run)) is not None:
        console.print(Text.assemble(("Engine  ", "bold"), safe_text(besides)))
    console.print(Text.assemble(("Trace   ", "bold"), safe_text(trace_line(work, run))))
    console.print(Text.assemble(("Policy  ", "bold"), safe_text(policy_line(scenario, run))))
    if note := path_note(scenario, run):
        console.print(Text.assemble(("Path    ", "bold"), safe_text(note)))
    console.print()
    console.print(_latencies(scenario, run.summary))
    for line in interval_lines(run):
        console.print(Text.assemble(("80 % intervals   ", "dim"), (line, "dim")))
    console.print()
    console.print(_others(run.summary, has_target=scenario.has_target))
    console.print()
    met = run.summary.slo_attainment_ratio
    colour = "" if met is None or not scenario.has_target else _colour_of(met)
    console.print(Text(verdict_line(scenario, run), style=f"bold {colour}".strip()))
    _show_beyond(console, [run])


def _colour_of(met: float) -> str:
    return "green" if met >= 0.95 else "yellow" if met >= 0.8 else "red"


def _latencies(scenario: Scenario, summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("p50", "p95", "p99", "target"):
        table.add_column(name, justify="right", min_width=8)
    rows: list[tuple[str, Quantiles | None, float | None]] = [
        ("time to first token", summary.ttft_s, scenario.slo.ttft_s),
        ("inter-token latency", summary.itl_s, scenario.slo.itl_s),
        ("  its mean per request", summary.itl_mean_s, None),
        ("end to end", summary.e2e_s, None),
    ]
    per_event = summary.tokens_per_event
    if per_event is not None and per_event > _SEVERAL_PER_EVENT:
        # Gaps are between events: what a reader sees is faster.
        rows.insert(3, (f"time per token ({per_event:.2f} a step)", summary.tpot_s, None))
    for name, quantiles, target_s in rows:
        known = (None,) * 3 if quantiles is None else (quantiles.p50, quantiles.p95, quantiles.p99)
        table.add_row(name, *(_latency(cell, target_s) for cell in known), _cell(target_s, seconds))
    return table


def _latency(value: float | None, target_s: float | None) -> Text:
    missed = value is not None and target_s is not None and value > target_s
    return Text(_cell(value, seconds), style="red" if missed else "")


def _cell(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _others(summary: Summary, *, has_target: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for figure in figures_shown(has_target=has_target):
        if ".p" in figure.key:
            continue  # in the other table
        value = figure.of(summary)
        if value is not None:
            table.add_row(figure.name, figure.text(value))
    for reason, number in sorted(summary.rejected.items()):
        table.add_row(f"  refused: {reason}", count(number))
    for name, number in (
        ("do not fit into any engine", summary.failed),
        ("left before the first token", summary.cancelled),
        ("joined another", summary.joined),
    ):
        if number:
            table.add_row(name, count(number))
    return table


def _show_beyond(console: Console, runs: Sequence[ArmRun]) -> None:
    """How far a fitted engine was taken beyond what it was learned from."""
    for run in runs:
        for line in beyond_seen(run.arm.fleet, run.result):
            text = f"{run.arm.name}: beyond what it was learned from: {line}"
            console.print(Text.assemble((safe_text(text).plain, "yellow")))


def show_comparison(scenario: Scenario, work: Workload, runs: Sequence[ArmRun]) -> None:
    """Arms beside each other, the best and the worst of each figure marked."""
    console = wide_console()
    _show_common(console, scenario, trace_line(work, runs[0]), runs)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for run in runs:
        table.add_column(safe_text(run.arm.name), justify="right")
    for figure in figures_shown(has_target=scenario.has_target):
        values = [figure.of(run.summary) for run in runs]
        if any(value is not None for value in values):
            table.add_row(figure.name, *_marked(figure, values))
    console.print(table)
    console.print()
    console.print(f"{BEST} best, {WORST} worst of the row", style="dim")
    for run in runs:
        for line in interval_lines(run):
            text = f"80 % intervals   {safe_text(run.arm.name).plain}: {line}"
            console.print(text, style="dim", markup=False)
    console.print(Text(comparison_line(scenario, runs), style="bold"))
    _show_beyond(console, runs)


def _show_common(console: Console, scenario: Scenario, trace: str, runs: Sequence[ArmRun]) -> None:
    fleets = {run.arm.fleet.name: run for run in runs}
    besides = {
        f"{run.arm.fleet.variant}: {line}" if run.arm.fleet.variant else line: None
        for run in fleets.values()
        if (line := engine_line(run)) is not None
    }
    notes = {note: None for run in runs if (note := path_note(scenario, run))}
    for title, lines in (
        ("Fleet", list({fleet_line(run): None for run in fleets.values()})),
        ("Engine", list(besides)),
        ("Trace", [trace]),
        ("Targets", [targets_line(scenario)]),
        ("Path", list(notes)),
    ):
        for number, line in enumerate(lines):
            head = "" if number else title
            console.print(Text.assemble((f"{head:9}", "bold"), safe_text(line)))
    console.print()


def _marked(figure: Figure, values: Sequence[float | None]) -> list[Text]:
    cells = []
    for value, mark in zip(values, marks(figure, values), strict=True):
        style = {BEST: "green", WORST: "red"}.get(mark, "")
        cells.append(Text(f"{_cell(value, figure.text)} {mark or ' '}", style=style))
    return cells


def show_capacity(
    scenario: Scenario, work: Workload, goal: Goal, found: Sequence[Capacity]
) -> None:
    """The highest rate of each arm, for people."""
    console = wide_console()
    runs = [each.run for each in found if each.run is not None]
    if runs:
        _show_common(console, scenario, workload_line(work), runs)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    names = ("capacity", "rate scale", "goodput", "met", "worst tenth", "USD/Mtok", "ratio")
    for title in names:
        table.add_column(title, justify="right")
    first = next((each.rate_scale for each in found if each.rate_scale is not None), None)
    for each in found:
        name = safe_text(each.arm.name)
        if each.run is None:
            why = "all rates" if each.unbounded else "none"
            table.add_row(name, why, *[""] * (len(names) - 1))
            continue
        summary, scale = each.run.summary, each.run.rate_scale
        table.add_row(
            name,
            rate(offered_rps(each.run)),
            f"{scale:.4g}",
            rate(summary.goodput_rps),
            _cell(summary.slo_attainment_ratio, percent),
            _cell(worst_decile(summary), percent),
            _cell(summary.usd_per_mtok, usd),
            f"{scale / first:.3g}" if first else "",
        )
    console.print(table)
    console.print()
    console.print(Text(capacity_line(goal, found), style="bold"))
    _show_beyond(console, runs)
