"""The HTML report of a sweep: its points, and the front that the best of them make."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.dashboard.report_chart import Axis, Chart, chart
from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table, text

__all__ = ["FrontPoint", "SweepPage", "sweep_chart", "sweep_page"]

_MARKERS = ("circle", "circle-open", "x-thin-open")
_ROOM_X, _ROOM_Y = 0.2, 0.1
"""Of the axes: a name has so much room around it, or is only shown on hovering."""
_KINDS = ("on the front", "within its noise", "beaten")


class FrontPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point as it is drawn. Latencies in seconds; `throughput` per second."""

    label: str
    ttft_s: float
    itl_s: float | None
    throughput: float
    kind: int
    """0 on the front, 1 within its noise, 2 beaten."""
    picks: tuple[str, ...] = ()


class SweepPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    points: tuple[FrontPoint, ...]
    first_latency: str
    """Such as TTFT p95."""
    second_latency: str
    throughput: str
    footer: str


def sweep_page(page: SweepPage) -> str:
    """The page as HTML, with all that it needs."""
    report = ReportPage(title=page.title, footer=page.footer)
    report.head(page.verdict, page.facts)
    charts = [
        _section(report, page, page.throughput, page.first_latency, "throughput", "ttft_s"),
    ]
    if all(point.itl_s is not None for point in page.points):
        charts += [
            _section(report, page, page.throughput, page.second_latency, "throughput", "itl_s"),
            _section(report, page, page.first_latency, page.second_latency, "ttft_s", "itl_s"),
        ]
    if page.points:
        report.add(pair(*charts))
    report.add(table("All points", page.rows, page.columns))
    return report.render()


def _section(report: ReportPage, page: SweepPage, x_name: str, y_name: str, x: str, y: str) -> str:
    place = report.place(sweep_chart(page.points, x_name, y_name, x, y), f"{y_name} over {x_name}")
    return (
        f"<section><h2>{text(y_name)} over {text(x_name)}</h2>"
        f'<div class="charts" style="--least: 480px"><figure>{place}</figure></div></section>'
    )


def sweep_chart(points: Sequence[FrontPoint], x_name: str, y_name: str, x: str, y: str) -> Chart:
    """Points by two of their fields, named `x_name` and `y_name` on the axes."""
    traces: list[dict[str, Any]] = []
    front = _staircase([p for p in points if p.kind == 0], x, y)
    if len(front) > 1:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [getattr(p, x) for p in front],
                "y": [getattr(p, y) for p in front],
                "line": {"color": "var(--c1)/0.4", "width": 1.4},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    for kind, name in enumerate(_KINDS):
        own = [point for point in points if point.kind == kind]
        if own:
            traces.append(_markers(own, kind, name, x, y))
    return chart(
        f"{y_name} over {x_name}",
        traces,
        _axis(points, x_name, x),
        _axis(points, y_name, y),
        time=False,
    )


def _axis(points: Sequence[FrontPoint], name: str, field: str) -> Axis:
    """Milliseconds and thousands are written so; thousandths of what has no unit are not."""
    most = max((abs(float(getattr(point, field) or 0.0)) for point in points), default=0.0)
    return {
        "tickformat": "~s" if _unit(field) or most >= 1000.0 else "~g",
        "rangemode": "tozero",
        "title": {"text": name},
        "ticksuffix": _unit(field),
    }


def _staircase(points: Sequence[FrontPoint], x: str, y: str) -> list[FrontPoint]:
    """Those that are not beaten in these two figures alone, by the first: what a line may join."""
    sign = -1.0 if x == "throughput" else 1.0
    found: list[FrontPoint] = []
    for point in sorted(points, key=lambda p: (sign * getattr(p, x), getattr(p, y))):
        if not found or getattr(point, y) < getattr(found[-1], y):
            found.append(point)
    return found


def _written(points: Sequence[FrontPoint], x: str, y: str) -> list[str]:
    """Names that have room, those of picks first; empty for the others."""
    x_max = max(float(getattr(point, x)) for point in points) or 1.0
    y_max = max(float(getattr(point, y)) for point in points) or 1.0
    places = [(getattr(point, x) / x_max, getattr(point, y) / y_max) for point in points]
    found = [""] * len(points)
    taken: list[tuple[float, float]] = []
    for index in sorted(range(len(points)), key=lambda i: -len(points[i].picks)):
        at_x, at_y = places[index]
        if all(abs(at_x - a) >= _ROOM_X or abs(at_y - b) >= _ROOM_Y for a, b in taken):
            taken.append(places[index])
            found[index] = html.escape(points[index].label)
    return found


def _unit(field: str) -> str:
    return "s" if field.endswith("_s") else ""


def _markers(points: Sequence[FrontPoint], kind: int, name: str, x: str, y: str) -> dict[str, Any]:
    colour = "var(--c1)" if kind < 2 else "var(--quiet)"
    labels = [html.escape(", ".join((point.label, *point.picks))) for point in points]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "textposition": "top center",
        "textfont": {"size": 10, "color": "var(--quiet)"},
        "cliponaxis": False,
        "name": name,
        "x": [getattr(point, x) for point in points],
        "y": [getattr(point, y) for point in points],
        "text": _written(points, x, y) if kind == 0 else [""] * len(points),
        "hovertext": labels,
        "marker": {"color": colour, "size": 9, "symbol": _MARKERS[kind]},
        "hovertemplate": "%{hovertext}<br>%{x:.3s} / %{y:.3s}<extra></extra>",
    }
