"""The HTML heatmap: time by GPU (or core), of bandwidth use and of idle time."""

from __future__ import annotations

import datetime as dt
import html
from typing import Any

import msgspec

from mileage.dashboard.report_chart import Chart, chart
from mileage.dashboard.report_page import ReportPage, text

__all__ = ["HeatGrid", "HeatPage", "heatmap_page"]

_ROW_PX = 26
_LEAST_PX = 170
_EMPTY = "Not known: nothing here tells it."


class HeatGrid(msgspec.Struct, frozen=True, kw_only=True):
    """Shares 0..1 by time and by row, `values[row][time]`; None is not known."""

    title: str
    note: str
    at_s: tuple[float, ...]
    """Start of each column, in order."""
    utc: bool
    """`at_s` are seconds since 1970; else since the first look."""
    names: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    colour: str
    """Custom property of the page's style for a share of 1."""

    @property
    def known(self) -> bool:
        """Whether any cell is known."""
        return any(value is not None for row in self.values for value in row)


class HeatPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    verdict: str
    facts: tuple[tuple[str, str], ...]
    grids: tuple[HeatGrid, ...]
    footer: str


def heatmap_page(page: HeatPage) -> str:
    """The page as HTML, with all that it needs."""
    report = ReportPage(title="Bandwidth and idle time", footer=page.footer)
    report.head(page.verdict, page.facts)
    for grid in page.grids:
        report.add(_section(report, grid))
    return report.render()


def _section(report: ReportPage, grid: HeatGrid) -> str:
    head = f"<section><h2>{text(grid.title)}</h2><p>{text(grid.note)}</p>"
    if not grid.known:
        return f"{head}<p>{text(_EMPTY)}</p></section>"
    place = report.place(_chart(grid), grid.title)
    height = max(_LEAST_PX, _ROW_PX * len(grid.names) + 60)
    return (
        f'{head}<div class="charts" style="--least: 480px; --chart-height: {height}px">'
        f"<figure>{place}</figure></div></section>"
    )


def _chart(grid: HeatGrid) -> Chart:
    times: list[Any] = list(grid.at_s)
    if grid.utc:
        moments = (dt.datetime.fromtimestamp(round(at_s, 3), dt.UTC) for at_s in grid.at_s)
        times = [moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] for moment in moments]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "x": times,
        "y": [html.escape(name) for name in grid.names],
        "z": [list(row) for row in grid.values],
        "zmin": 0.0,
        "zmax": 1.0,
        "xgap": 1 if len(times) < 200 else 0,
        "ygap": 2,
        "hoverongaps": False,
        "colorscale": [[0.0, "var(--grid)"], [1.0, f"var(--{grid.colour})"]],
        "colorbar": {"tickformat": ".0%", "thickness": 10, "outlinewidth": 0, "len": 1.0},
        "hovertemplate": "%{y}, %{x}<br>%{z:.0%}<extra></extra>",
        "showlegend": False,
    }
    unknown = {
        "type": "heatmap",
        "x": times,
        "y": heat["y"],
        "z": [[1.0 if value is None else None for value in row] for row in grid.values],
        "xgap": heat["xgap"],
        "ygap": 2,
        "hoverongaps": False,
        "showscale": False,
        "colorscale": [[0.0, "var(--bad)/0.14"], [1.0, "var(--bad)/0.14"]],
        "hovertemplate": "%{y}, %{x}<br>not known<extra></extra>",
        "showlegend": False,
    }
    across = {"type": "date"} if grid.utc else {"title": {"text": "seconds"}}
    axis = {"type": "category", "autorange": "reversed", "ticks": "", "showgrid": False}
    return chart(grid.title, [heat, unknown], across, axis, legend=False)
