"""The HTML report of a bill: who spent what over time, and where each dollar went."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.dashboard.report_chart import Axis, Chart, chart
from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table, text

__all__ = ["CostPage", "CostSeries", "cost_page"]

_COLOURS = ("c1", "c2", "c3", "c5", "c6", "c4")
_TICKS_MAX = 8


class CostSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a chart: a value per period; `rest`: idle time, and what is like it."""

    name: str
    values: tuple[float, ...]
    rest: bool = False


class CostPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows. `unit`: what values of charts are in, such as EUR."""

    verdict: str
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    by: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    periods: tuple[str, ...]
    accounts: tuple[CostSeries, ...]
    kinds: tuple[CostSeries, ...]
    where: tuple[tuple[str, float], ...]
    prices: tuple[ReportRow, ...]
    footer: str


def cost_page(page: CostPage) -> str:
    """The page as HTML, with all that it needs."""
    report = ReportPage(title="Costs", footer=page.footer)
    report.head(page.verdict, page.facts)
    if page.warnings:
        listed = "".join(f"<li>{text(warning)}</li>" for warning in page.warnings)
        report.add(f'<ul class="warnings">{listed}</ul>')
    report.tiles(page.tiles)
    if page.periods:
        report.add(
            pair(
                _section(report, f"{page.unit} by {page.by}", _stack(page, page.accounts)),
                _section(report, f"{page.unit} by what it was for", _stack(page, page.kinds)),
            )
        )
    if page.where:
        report.add(_section(report, f"Where the {page.unit} went", _where(page), short=True))
    report.add(table(f"By {page.by}", page.rows, page.columns))
    if page.prices:
        columns = ("GPU", "USD per GPU-hour", "by", "date")
        report.add(table("Prices", page.prices, columns, kind="texts"))
    return report.render()


def _section(report: ReportPage, title: str, drawn: Chart, *, short: bool = False) -> str:
    place = report.place(drawn, title)
    if short:
        place = place.replace('class="chart"', 'class="chart" style="height: 190px"', 1)
    return (
        f"<section><h2>{text(title)}</h2>"
        f'<div class="charts" style="--least: 480px"><figure>{place}</figure></div></section>'
    )


def _stack(page: CostPage, series: Sequence[CostSeries]) -> Chart:
    """Bars of each period, one on the other."""
    base = [0.0] * len(page.periods)
    traces: list[dict[str, Any]] = []
    coloured = 0
    for part in series:
        own = f"var(--{_COLOURS[coloured % len(_COLOURS)]})"
        colour = _quiet(part.name) if part.rest else own
        coloured += not part.rest
        name = html.escape(part.name)
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": list(page.periods),
                "y": list(part.values),
                "base": list(base),
                "offsetgroup": "all",
                "customdata": list(part.values),
                "marker": {"color": colour, "line": {"width": 0}},
                "hovertemplate": f"%{{x}}<br>%{{customdata:,.4~g}} {html.escape(page.unit)}"
                f"<extra>{name}</extra>",
            }
        )
        base = [low + value for low, value in zip(base, part.values, strict=True)]
    shown = list(page.periods)[:: -(-len(page.periods) // _TICKS_MAX)]
    year = len({period[:4] for period in page.periods}) == 1
    x_axis: Axis = {
        "type": "category",
        "tickangle": 0,
        "tickvals": shown,
        "ticktext": [period[5:] if year and period[5:] else period for period in shown],
    }
    y_axis: Axis = {"rangemode": "tozero", "tickformat": "~s", "title": {"text": page.unit}}
    return chart(page.unit, traces, x_axis, y_axis, time=False)


def _where(page: CostPage) -> Chart:
    whole = sum(value for _, value in page.where) or 1.0
    names = [html.escape(name) for name, _ in reversed(page.where)]
    values = [value for _, value in reversed(page.where)]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": values,
        "text": [f"{value / whole:.1%}" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [_quiet(n) if _idle(n) else "var(--c1)" for n in names]},
        "hovertemplate": f"%{{y}}: %{{x:,.4~g}} {html.escape(page.unit)}<extra></extra>",
        "showlegend": False,
    }
    x_axis: Axis = {"rangemode": "tozero", "tickformat": "~s", "title": {"text": page.unit}}
    return chart("where", [trace], x_axis, {"type": "category"}, time=False)


def _quiet(name: str) -> str:
    """Idle time is the palest, as there is most of it."""
    return "var(--quiet)/0.3" if "idle" in name else "var(--quiet)/0.8"


def _idle(name: str) -> bool:
    return name in ("idle", "warm-up", "unattributed")
