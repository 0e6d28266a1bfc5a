"""The HTML report of an A/B run: its metrics side by side, and the intervals of their ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mileage.dashboard.report_chart import Axis, Chart, chart
from mileage.dashboard.report_page import ReportPage, ReportRow, table

__all__ = ["AbInterval", "AbPage", "ab_page", "interval_chart"]

_FURTHEST: Final = 11.0
"""Intervals of few pairs may end nowhere near; the axis ends here, or at the largest ratio."""
_ROOM: Final = 0.06
"""Of the axis, on both sides."""


class AbInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's ratio b / a and its interval."""

    name: str
    ratio: float
    low: float
    high: float


class AbPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    intervals: tuple[AbInterval, ...]
    footer: str


def ab_page(page: AbPage) -> str:
    """The page as HTML, with all that it needs."""
    report = ReportPage(title=page.title, footer=page.footer)
    report.head(page.verdict, page.facts)
    report.add(table("Side by side", page.rows, page.columns))
    if page.intervals:
        place = report.place(
            interval_chart(page.intervals), "b / a of each metric with its interval"
        )
        report.add(
            "<section><h2>b / a, with its interval</h2>"
            f'<div class="charts" style="--least: 480px"><figure>{place}</figure></div></section>'
        )
    return report.render()


def interval_chart(intervals: Sequence[AbInterval]) -> Chart:
    """The intervals below each other, and the line on which the arms are equal."""
    shown = list(reversed(intervals))
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [each.ratio for each in shown],
        "y": [each.name for each in shown],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.ratio for each in shown],
            "arrayminus": [each.ratio - each.low for each in shown],
            "color": "var(--c1)",
        },
        "marker": {"color": "var(--c1)", "size": 9},
        "showlegend": False,
        "hovertemplate": "%{y}: %{x:.3f}<extra></extra>",
    }
    return chart(
        "b / a",
        [trace],
        _ratio_axis(shown),
        {"type": "category", "automargin": True},
        shapes=[_equal()],
        time=False,
    )


def _ratio_axis(intervals: Sequence[AbInterval]) -> Axis:
    """An axis with 1 on it, wherever the intervals are."""
    low = min(1.0, *(each.low for each in intervals))
    ends = max(1.0, *(each.high for each in intervals))
    high = min(ends, max(_FURTHEST, *(each.ratio for each in intervals)))
    room = _ROOM * (high - low) or _ROOM
    return {
        "title": {"text": "b / a"},
        "tickformat": ".3~f",
        "range": [low - room, high + room],
    }


def _equal() -> dict[str, Any]:
    return {
        "type": "line",
        "x0": 1.0,
        "x1": 1.0,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": "var(--quiet)", "width": 1.2, "dash": "dot"},
    }
