"""One chart of a report: traces and axes as plotly takes them, in the page's colours.

Colours are `var(--NAME)`, a custom property of the page's style, with `/ALPHA` behind it where it
is not opaque: the page's script puts in what they are in its light or dark theme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "Axis",
    "Chart",
    "band",
    "chart",
    "latency_range",
    "line",
    "log_axis",
    "share_curve",
    "target_line",
    "time_unit",
]

Values = Sequence[float | None]
Axis = dict[str, Any]
Chart = dict[str, Any]

_LOG_FROM: Final = 30.0
"""Latencies that differ by more than this factor are shown on a logarithmic axis."""
_DECADES: Final = 2.6
"""Over more of them there is a label per decade, else three."""
_CURVE_POINTS: Final = 400
_FEW: Final = 4
"""So few points are shown as such: a line of one would not be seen."""


def line(
    name: str,
    x: Values,
    y: Values,
    colour: str,
    *,
    width: float = 1.6,
    dash: str = "solid",
    shown: str = "%{y:.3s}",
) -> dict[str, Any]:
    """A line; None is a gap."""
    few = sum(value is not None for value in y) < _FEW
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": html.escape(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": f"var(--{colour})", "width": width, "dash": dash},
        "hovertemplate": f"{shown}<extra>{html.escape(name)}</extra>",
    }


def band(x: Values, low: Values, high: Values, colour: str) -> list[dict[str, Any]]:
    """The area between two lines; bins without values are bridged."""
    known = [
        (at, bottom, top)
        for at, bottom, top in zip(x, low, high, strict=True)
        if bottom is not None and top is not None
    ]
    edge = {
        "type": "scatter",
        "mode": "lines",
        "x": [at for at, _, _ in known],
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [
        {**edge, "y": [bottom for _, bottom, _ in known]},
        {
            **edge,
            "y": [top for _, _, top in known],
            "fill": "tonexty",
            "fillcolor": f"var(--{colour})/0.16",
        },
    ]


def target_line(value: float, *, axis: str = "y") -> dict[str, Any]:
    """A dashed line across the chart where a target is."""
    other = "x" if axis == "y" else "y"
    return {
        "type": "line",
        f"{axis}0": value,
        f"{axis}1": value,
        f"{other}0": 0,
        f"{other}1": 1,
        f"{other}ref": "paper",
        "line": {"color": "var(--bad)", "width": 1.2, "dash": "dash"},
    }


def latency_range(values: Iterable[float | None], target_s: float | None) -> Axis:
    """An axis of seconds that holds all of the values, and the target unless it is far above."""
    known = [value for value in values if value is not None and value > 0.0]
    axis: Axis = {"tickformat": "~s", "ticksuffix": "s"}
    if not known:
        return axis
    low, high = min(known), max(known)
    if target_s is not None and target_s <= high * _LOG_FROM:
        high = max(high, target_s)
    if high > low * _LOG_FROM:
        return log_axis(low, high)
    return {**axis, "range": [0.0, high * 1.08]}


def log_axis(low_s: float, high_s: float) -> Axis:
    """A logarithmic axis of seconds, with as many labels as there is room for."""
    low, high = math.log10(low_s) - 0.08, math.log10(high_s) + 0.08
    steps = (1,) if high - low > _DECADES else (1, 2, 5)
    at = [
        step * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for step in steps
        if low <= math.log10(step) + power <= high
    ]
    return {
        "type": "log",
        "range": [low, high],
        "tickvals": at,
        "ticktext": [_short_s(value) for value in at],
        "hoverformat": ".3s",
    }


def _short_s(value_s: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value_s >= size * 0.999:
            return f"{value_s / size:g}{unit}"
    return f"{value_s:g}s"


def time_unit(duration_s: float) -> tuple[float, str]:
    """Seconds of the unit that a time axis is best read in, and its name."""
    if duration_s > 3 * 86_400.0:
        return 86_400.0, "days"
    if duration_s > 3 * 3600.0:
        return 3600.0, "hours"
    return (60.0, "minutes") if duration_s > 180.0 else (1.0, "seconds")


def share_curve(values: ArrayLike, whole: int) -> tuple[list[float], list[float]]:
    """Distribution of `values`, shape (n,), in any order, in at most 400 points: values, and the
    share of `whole` that is at most as large."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not len(ordered):
        return [], []
    at = np.unique(np.linspace(0, len(ordered) - 1, _CURVE_POINTS).astype(np.int64))
    share = (at + 1) / whole
    return [float(f"{v:.5g}") for v in ordered[at]], [round(float(s), 5) for s in share]


def chart(
    name: str,
    traces: list[dict[str, Any]],
    x_axis: Axis,
    y_axis: Axis,
    *,
    shapes: Sequence[dict[str, Any]] = (),
    legend: bool = True,
    time: bool = True,
) -> Chart:
    """A chart. `time`: its x axis is the one of all charts over time, which are zoomed together."""
    return {
        "name": name,
        "traces": traces,
        "xaxis": x_axis,
        "yaxis": y_axis,
        "shapes": list(shapes),
        "legend": legend and sum(trace.get("showlegend", True) for trace in traces) > 1,
        "time": time,
    }
