"""The HTML report of a load run: its figures, how it went over time, and what to beware of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.core.slo import Slo
from mileage.dashboard.bench_charts import (
    Panel,
    distribution_panels,
    failure_panel,
    time_panels,
)
from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table, text
from mileage.measure.call_record import CallRecord
from mileage.measure.run_series import RunSeries
from mileage.measure.server_use import UseSeries

__all__ = ["BenchReport", "render"]


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of one run. Times of `series`, `start_s` and `end_s` are on the run's clock,
    which began when the monotonic clock of `use` showed `zero_monotonic_s`."""

    title: str
    verdict: str
    lines: tuple[tuple[str, str], ...]
    """Name and text: where, what load, what became of it."""
    warnings: tuple[str, ...]
    tiles: tuple[tuple[str, str], ...]
    quantiles: tuple[str, ...]
    """Names of the columns of `latencies`."""
    latencies: tuple[ReportRow, ...]
    figures: tuple[ReportRow, ...]
    errors: tuple[ReportRow, ...]
    """What went wrong, and how often."""
    conditions: tuple[ReportRow, ...]
    measured: Sequence[CallRecord]
    failed: dict[str, int]
    series: RunSeries
    use: UseSeries
    slo: Slo
    start_s: float
    end_s: float
    zero_monotonic_s: float
    version: str


def render(report: BenchReport) -> str:
    """The page as text. It has its scripts inside, and allows no others."""
    page = ReportPage(title=report.title, footer=f"Measured by Mileage {report.version}.")
    page.head(report.verdict, report.lines)
    if report.warnings:
        items = "".join(f"<li>{text(line)}</li>" for line in report.warnings)
        page.add(f'<ul class="warnings">{items}</ul>')
    page.tiles(report.tiles)
    page.add(
        pair(
            table("Latencies", report.latencies, report.quantiles, note=_NOTE),
            table("Figures", report.figures),
        )
    )
    over_time = time_panels(
        report.series,
        report.use,
        report.slo,
        start_s=report.start_s,
        end_s=report.end_s,
        zero_monotonic_s=report.zero_monotonic_s,
    )
    page.add(_charts("Over time", "shaded: not measured", over_time, page, least=330))
    spread = distribution_panels(report.measured, report.slo)
    if spread:
        page.add(_charts("All measured requests", "", spread, page, least=300))
    failures = failure_panel(report.failed)
    wrong = []
    if failures is not None:
        wrong.append(_charts("Failures", "", [failures], page, least=360))
    if report.errors:
        wrong.append(table("What went wrong", report.errors, kind="texts"))
    if wrong:
        page.add(pair(*wrong))
    half = (len(report.conditions) + 1) // 2
    page.add(
        pair(
            table("Conditions", report.conditions[:half], kind="texts"),
            table("Conditions, continued", report.conditions[half:], kind="texts"),
        )
    )
    return page.render()


_NOTE = "from when each request was due, not from when it was sent"


def _charts(
    title: str, about: str, panels: Sequence[Panel], page: ReportPage, *, least: int
) -> str:
    figures = []
    for panel in panels:
        caption = f"<figcaption>{text(panel.title)}</figcaption>"
        below = f'<p class="about">{text(panel.about)}</p>'
        figures.append(f"<figure>{caption}{below}{page.place(panel.chart, panel.title)}</figure>")
    note = f"<p>{text(about)}</p>" if about else ""
    return (
        f"<section><h2>{text(title)}</h2>{note}"
        f'<div class="charts" style="--least: {least}px">{"".join(figures)}</div></section>'
    )
