"""The HTML report of simulations: their figures, and how they went over time."""

from __future__ import annotations

import msgspec

from mileage.core.slo import Slo
from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table, text
from mileage.dashboard.sim_charts import ReportArm, Row, distribution_charts, time_rows

__all__ = ["SimReport", "render"]


class SimReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of one or several simulations of one trace."""

    title: str
    verdict: str
    lines: tuple[tuple[str, str], ...]
    """Name and text of what was simulated."""
    arms: tuple[ReportArm, ...]
    slo: Slo
    gaps: str
    """p99 or mean: what of a request's gaps has to meet the target."""
    tiles: tuple[tuple[str, str], ...]
    """The main figures, where there is one arm."""
    figures: tuple[ReportRow, ...]
    """A cell per arm, as in `assumptions`."""
    assumptions: tuple[ReportRow, ...]
    version: str


def render(report: SimReport) -> str:
    """The page as text. It has its scripts inside, and allows no others."""
    page = ReportPage(title=report.title, footer=f"Simulated by Mileage {report.version}.")
    several = len(report.arms) > 1
    names = [arm.name for arm in report.arms] if several else []
    page.head(report.verdict, report.lines)
    if report.tiles:
        page.tiles(report.tiles)
    all_requests = _distributions(report, page)
    if several:
        figures = table("Figures", report.figures, names, note="▲ best, ▼ worst of a row")
        page.add(pair(figures, all_requests))
    sections = [
        _section(row, page, several=several)
        for row in time_rows(report.arms, report.slo, report.gaps)
    ]
    page.add(*(sections if several else [pair(*sections), all_requests]))
    assumed = table("Assumptions", report.assumptions, names, kind="texts")
    page.add(assumed if several else pair(table("Figures", report.figures), assumed))
    return page.render()


def _section(row: Row, page: ReportPage, *, several: bool) -> str:
    figures = []
    for chart in row.charts:
        caption = f"<figcaption>{text(chart['name'])}</figcaption>" if several else ""
        label = f"{row.title}: {chart['name']}"
        figures.append(f"<figure>{caption}{page.place(chart, label)}</figure>")
    least = "380px" if several else "480px"
    return (
        f"<section><h2>{text(row.title)}</h2><p>{text(row.about)}</p>"
        f'<div class="charts" style="--least: {least}">{"".join(figures)}</div></section>'
    )


def _distributions(report: SimReport, page: ReportPage) -> str:
    figures = []
    for title, about, chart in distribution_charts(report.arms, report.slo, report.gaps):
        caption = f'<figcaption>{text(title)}</figcaption><p class="about">{text(about)}</p>'
        figures.append(f"<figure>{caption}{page.place(chart, title)}</figure>")
    return (
        "<section><h2>All requests</h2><p>dashed: the target</p>"
        f'<div class="charts" style="--least: 360px">{"".join(figures)}</div></section>'
    )
