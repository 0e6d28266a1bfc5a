"""The HTML report of `mileage simulate --report`: what is in it, and the file that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mileage import __version__
from mileage.cli.html_report import write_page
from mileage.cli.simulate_document import arm_assumptions, assumptions
from mileage.cli.simulate_figures import BEST, WORST, figures_shown, marks
from mileage.cli.simulate_intervals import interval_lines
from mileage.cli.simulate_lines import (
    comparison_line,
    engine_line,
    fleet_line,
    targets_line,
    trace_line,
    verdict_line,
)
from mileage.cli.simulate_run import ArmRun
from mileage.cli.simulate_scenario import Scenario
from mileage.cli.simulate_workload import Workload

__all__ = ["write_report"]

_SIGNS = {BEST: 1, WORST: -1}
_TILES = (
    "slo_attainment_ratio",
    "goodput_rps",
    "ttft_s.p95",
    "itl_s.p95",
    "usd_per_mtok",
    "gpu_busy_ratio",
    "rejected",
)


def write_report(path: Path, scenario: Scenario, work: Workload, runs: Sequence[ArmRun]) -> None:
    """Write the report of these simulations; the file is whole, or as it was before. Raises
    ConfigError, and FileError where writing fails."""
    write_page(path, _page(scenario, work, runs))


def _page(scenario: Scenario, work: Workload, runs: Sequence[ArmRun]) -> str:
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.report_page import ReportRow
    from mileage.dashboard.sim_charts import ReportArm
    from mileage.dashboard.sim_report import SimReport, render

    first = runs[0]
    fleets = {run.arm.fleet.name: fleet_line(run) for run in runs}
    besides = {
        f"{run.arm.fleet.name}: {line}" if len(fleets) > 1 else line: None
        for run in runs
        if (line := engine_line(run)) is not None
    }
    single = len(runs) == 1
    verdict = verdict_line(scenario, first) if single else comparison_line(scenario, runs)
    shown = figures_shown(has_target=scenario.has_target)
    figures = []
    for figure in shown:
        values = [figure.of(run.summary) for run in runs]
        if any(value is not None for value in values):
            cells = tuple("-" if value is None else figure.text(value) for value in values)
            signs = tuple(_SIGNS.get(mark, 0) for mark in marks(figure, values))
            figures.append(ReportRow(name=figure.name, cells=cells, marks=signs))
    tiles = []
    for figure in shown if single else ():
        value = figure.of(first.summary)
        if figure.key in _TILES and value is not None:
            tiles.append((figure.name, figure.text(value)))
    report = SimReport(
        title=f"{first.arm.fleet.model}: a simulation of {Path(work.name).name}",
        verdict=verdict,
        lines=(
            *(("Fleet", line) for line in fleets.values()),
            *(("Engine", line) for line in besides),
            ("Trace", trace_line(work, first)),
            ("Policy" if single else "Policies", ", ".join(_names(runs))),
            ("Targets", targets_line(scenario)),
            *(("80 % intervals", line) for line in _intervals(runs)),
        ),
        arms=tuple(
            ReportArm(
                name=run.arm.name,
                result=run.result,
                summary=run.summary,
                usd_per_gpu_hour=run.arm.fleet.usd_per_gpu_hour,
            )
            for run in runs
        ),
        slo=scenario.slo,
        gaps=scenario.gaps,
        tiles=tuple(tiles),
        figures=tuple(figures),
        assumptions=tuple(
            ReportRow(name=name, cells=cells) for name, cells in _assumed(scenario, work, runs)
        ),
        version=__version__,
    )
    return render(report)


def _intervals(runs: Sequence[ArmRun]) -> list[str]:
    if len(runs) == 1:
        return interval_lines(runs[0])
    return [f"{run.arm.name}: {line}" for run in runs for line in interval_lines(run)]


def _names(runs: Sequence[ArmRun]) -> list[str]:
    return list(dict.fromkeys(run.arm.policy.name for run in runs))


def _assumed(
    scenario: Scenario, work: Workload, runs: Sequence[ArmRun]
) -> list[tuple[str, tuple[str, ...]]]:
    """Name and a text for each arm."""
    common = _flat(assumptions(scenario, work))
    own = [_flat(arm_assumptions(run)) for run in runs]
    rows = [(name, (text,) * len(runs)) for name, text in common.items()]
    names = dict.fromkeys(name for each in own for name in each)  # not all have all features
    rows += [(name, tuple(each.get(name, "-") for each in own)) for name in names]
    return rows


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = "-" if value is None else str(value)
    return found
