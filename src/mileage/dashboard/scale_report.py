"""The HTML report of a scale-out: throughput by replicas beside linear, and efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.dashboard.report_chart import Axis, Chart, chart, line
from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table, text

__all__ = ["ScaleChartPoint", "ScalePage", "scale_page"]

_TICKS_MAX = 16


class ScaleChartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A number of replicas as it is drawn."""

    replicas: int
    throughput: float
    low: float | None
    high: float | None
    linear: float
    law: float | None
    efficiency_ratio: float
    latency_s: float | None


class ScalePage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    verdict: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    points: tuple[ScaleChartPoint, ...]
    throughput: str
    footer: str


def scale_page(page: ScalePage) -> str:
    """The page as HTML, with all that it needs."""
    report = ReportPage(title="Scale-out", footer=page.footer)
    report.head(page.verdict, page.facts)
    if page.points:
        report.add(
            pair(
                _section(report, f"{page.throughput} by replicas", _throughput(page)),
                _section(report, "Efficiency per replica", _efficiency(page.points)),
            )
        )
    report.add(table("All numbers of replicas", page.rows, page.columns))
    return report.render()


def _section(report: ReportPage, title: str, drawn: Chart) -> str:
    place = report.place(drawn, title)
    return (
        f"<section><h2>{text(title)}</h2>"
        f'<div class="charts" style="--least: 480px"><figure>{place}</figure></div></section>'
    )


def _throughput(page: ScalePage) -> Chart:
    points = page.points
    x = [point.replicas for point in points]
    measured = line("measured", x, [point.throughput for point in points], "c1")
    measured |= {"mode": "lines+markers", "error_y": _errors(points)}
    traces = [measured, line("linear", x, [p.linear for p in points], "quiet", dash="dot")]
    if any(point.law is not None for point in points):
        traces.append(line("fitted law", x, [p.law for p in points], "c2", dash="dash"))
    axis: Axis = {"tickformat": "~s", "rangemode": "tozero", "title": {"text": "per second"}}
    return chart(page.throughput, traces, _replicas(points), axis, time=False)


def _errors(points: Sequence[ScaleChartPoint]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if p.high is None else p.high - p.throughput for p in points],
        "arrayminus": [0.0 if p.low is None else p.throughput - p.low for p in points],
        "color": "var(--c1)",
    }


def _efficiency(points: Sequence[ScaleChartPoint]) -> Chart:
    x = [point.replicas for point in points]
    ratios = [point.efficiency_ratio for point in points]
    own = line("per replica, of the first's", x, ratios, "c1", shown="%{y:.0%}")
    own["mode"] = "lines+markers"
    axis: Axis = {"tickformat": ".0%", "range": [0.0, max(1.1, *ratios) * 1.05]}
    return chart("efficiency", [own], _replicas(points), axis, time=False)


def _replicas(points: Sequence[ScaleChartPoint]) -> Axis:
    """Ticks at the numbers that were measured, as there is no half of a replica."""
    axis: Axis = {"title": {"text": "replicas"}, "rangemode": "tozero"}
    if len(points) > _TICKS_MAX:
        return axis
    return {**axis, "tickmode": "array", "tickvals": [point.replicas for point in points]}
