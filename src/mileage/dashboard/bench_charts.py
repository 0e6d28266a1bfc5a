"""The charts of a load run's report: how it went over time, and distributions of latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from mileage.core.slo import Slo
from mileage.dashboard.report_chart import (
    Axis,
    Chart,
    band,
    chart,
    latency_range,
    line,
    log_axis,
    share_curve,
    target_line,
    time_unit,
)
from mileage.measure.call_record import CallRecord
from mileage.measure.record_latency import Floats, gaps_of, latencies
from mileage.measure.run_series import RunSeries
from mileage.measure.server_use import UseSeries

__all__ = ["Panel", "distribution_panels", "failure_panel", "time_panels"]

_CLASSES: Final = (
    "connect",
    "timeout",
    "broken",
    "cut",
    "rejected",
    "client_error",
    "server_error",
    "malformed",
    "unsent",
)
_POINT_PX: Final = 5


class Panel(NamedTuple):
    """One chart with its title and what it shows."""

    title: str
    about: str
    chart: Chart


def time_panels(
    series: RunSeries,
    use: UseSeries,
    slo: Slo,
    *,
    start_s: float,
    end_s: float,
    zero_monotonic_s: float,
) -> list[Panel]:
    """How it went; the time outside of the measured window is shaded.

    `use` is on the monotonic clock that showed `zero_monotonic_s` at the run's zero.
    """
    whole_s = series.second_s[-1] + series.step_s if series.second_s else end_s
    unit_s, unit = time_unit(whole_s)
    x = [round((at + series.step_s / 2) / unit_s, 4) for at in series.second_s]
    x_axis: Axis = {"title": {"text": f"{unit} since it began"}, "range": [0.0, whole_s / unit_s]}
    shades = [
        _shade(low / unit_s, high / unit_s)
        for low, high in ((0.0, start_s), (end_s, whole_s))
        if high > low
    ]
    panels = [
        *_latencies(series, slo, x, x_axis, shades),
        _panel("Traffic", "requests per second", _traffic(series, x), x_axis, shades),
        _panel(
            "In flight",
            "requests due and not over, in the mean",
            [line("in flight", x, list(series.in_flight), "c1", width=2.0)],
            x_axis,
            shades,
        ),
        _panel(
            "Output",
            "tokens per second as they came",
            [line("tokens/s", x, _per_s(series.output_tokens, series.step_s), "c3", width=2.0)],
            x_axis,
            shades,
        ),
        _latency_lines(
            "Generator",
            "the latest that a request was taken up, after it was due",
            [line("lag", x, list(series.lag_max_s), "c5", width=1.6, shown="%{y:.3s}s")],
            x_axis,
            shades,
        ),
    ]
    server = _server(use, zero_monotonic_s, unit_s)
    for title, about, traces, tickformat in server:
        limits = (0.0, 1.02) if tickformat == ".0%" else None
        panels.append(_panel(title, about, traces, x_axis, shades, tickformat, limits))
    return [_with_points(each) for each in panels if _has_values(each.chart)]


def _latencies(
    series: RunSeries, slo: Slo, x: list[float], x_axis: Axis, shades: list[dict[str, Any]]
) -> list[Panel]:
    """Quantiles of each second, with the targets where there are some."""
    due, ended = "of requests due then", "of gaps that ended then"
    rows = [
        ("Time to first token", due, series.ttft_p50_s, series.ttft_p99_s, slo.ttft_s),
        ("Inter-token latency", ended, series.itl_p50_s, series.itl_p99_s, slo.itl_s),
        ("End to end", due, series.e2e_p50_s, series.e2e_p99_s, None),
    ]
    return [
        _latency(title, about, x, x_axis, shades, p50_s, p99_s, target_s)
        for title, about, p50_s, p99_s, target_s in rows
    ]


def _has_values(drawn: Chart) -> bool:
    return any(y is not None for trace in drawn["traces"] for y in trace["y"])


def _with_points(panel: Panel) -> Panel:
    """Values that stand alone between gaps are shown as points: a line of one is not seen."""
    traces = [_pointed(trace) for trace in panel.chart["traces"]]
    return panel._replace(chart={**panel.chart, "traces": traces})


def _pointed(trace: dict[str, Any]) -> dict[str, Any]:
    style = trace["line"]
    if trace["mode"] != "lines" or not style["width"]:  # an edge of a band is not to be seen
        return trace
    known = [False, *(y is not None for y in trace["y"]), False]
    sizes = [
        _POINT_PX if here and not (before or after) else 0
        for before, here, after in zip(known, known[1:], known[2:], strict=False)
    ]
    if not any(sizes):
        return trace
    # With sizes in a list plotly means bubbles, half transparent and with an edge even at size 0.
    marker = {"color": style["color"], "size": sizes, "opacity": 1.0, "line": {"width": 0}}
    return {**trace, "mode": "lines+markers", "marker": marker}


def _shade(low: float, high: float) -> dict[str, Any]:
    """Time that counts in no figure."""
    return {
        "type": "rect",
        "x0": low,
        "x1": high,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "layer": "below",
        "fillcolor": "var(--quiet)/0.13",
        "line": {"width": 0},
    }


def _latency(
    title: str,
    about: str,
    x: Sequence[float],
    x_axis: Axis,
    shades: Sequence[dict[str, Any]],
    p50: Sequence[float | None],
    p99: Sequence[float | None],
    target_s: float | None,
) -> Panel:
    traces = band(x, p50, p99, "c1")
    traces.append(line("p50", x, p50, "c1", width=2.0, shown="%{y:.3s}s"))
    traces.append(line("p99", x, p99, "c4", width=1.4, shown="%{y:.3s}s"))
    y_axis = latency_range([*p50, *p99], target_s)
    shapes = [*shades, *([] if target_s is None else [target_line(target_s)])]
    if target_s is not None:
        about += "; dashed: the target"
    return Panel(title, about, chart(title, traces, x_axis, y_axis, shapes=shapes))


def _latency_lines(
    title: str,
    about: str,
    traces: list[dict[str, Any]],
    x_axis: Axis,
    shades: Sequence[dict[str, Any]],
) -> Panel:
    y_axis = latency_range([y for trace in traces for y in trace["y"]], None)
    return Panel(title, about, chart(title, traces, x_axis, y_axis, shapes=shades))


def _panel(
    title: str,
    about: str,
    traces: list[dict[str, Any]],
    x_axis: Axis,
    shades: Sequence[dict[str, Any]],
    tickformat: str = "~s",
    limits: tuple[float, float] | None = None,
) -> Panel:
    values = [y for trace in traces for y in trace["y"] if y is not None]
    top = max(values, default=1.0) or 1.0
    y_axis = {"tickformat": tickformat, "range": list(limits or (0.0, top * 1.08))}
    return Panel(title, about, chart(title, traces, x_axis, y_axis, shapes=shades))


def _per_s(counts: Sequence[float], step_s: float) -> list[float | None]:
    return [count / step_s for count in counts]


def _traffic(series: RunSeries, x: Sequence[float]) -> list[dict[str, Any]]:
    step_s = series.step_s
    traces = [
        line("due", x, _per_s(series.arrivals, step_s), "c1", width=2.0),
        line("answered well", x, _per_s(series.done, step_s), "c3"),
    ]
    if any(series.failed):
        traces.append(line("failed", x, _per_s(series.failed, step_s), "bad"))
    if any(series.cancelled):
        traces.append(line("cancelled", x, _per_s(series.cancelled, step_s), "quiet"))
    return traces


def _server(
    use: UseSeries, zero_s: float, unit_s: float
) -> list[tuple[str, str, list[dict[str, Any]], str]]:
    """Panels of the server, of what was seen of it."""
    samples = use.samples
    x = [round((sample.at_s - zero_s) / unit_s, 4) for sample in samples]
    shown = "%{y:.1%}"
    shares = [
        line("utilisation", x, [s.utilisation_ratio for s in samples], "c1", width=2.0, shown=shown)
    ]
    if any(s.kv_cache_usage_ratio is not None for s in samples):
        values = [s.kv_cache_usage_ratio for s in samples]
        shares.append(line("KV cache", x, values, "c2", shown=shown))
    queue = [
        line("running", x, [s.running for s in samples], "c1", width=2.0),
        line("waiting", x, [s.waiting for s in samples], "c4"),
    ]
    memory = [line("memory", x, [s.memory_bytes for s in samples], "c5", width=2.0)]
    return [
        ("Server", "utilisation, and use of the KV cache", shares, ".0%"),
        ("Server's queue", "requests by the engine's own count", queue, "~s"),
        ("Server's memory", "bytes", memory, ".3s"),
    ]


def distribution_panels(records: Sequence[CallRecord], slo: Slo) -> list[Panel]:
    """Distributions of what the measured requests met."""
    columns = latencies(records)
    ok = [record for record in records if record.outcome == "ok"]
    gaps = gaps_of(ok)
    requests = len(records)
    panels = []
    for title, about, values, whole, target_s in (
        ("Time to first token", "share of all requests", columns.ttft_s, requests, slo.ttft_s),
        ("A request's own p99 of gaps", "share of answers", gaps.request_p99_s, None, slo.itl_s),
        ("Time per output token", "share of answers", columns.tpot_s, None, None),
        ("End to end", "share of all requests", columns.e2e_s, requests, None),
    ):
        known: Floats = values[~np.isnan(values)]
        if not len(known):
            continue
        x, y = share_curve(known, len(known) if whole is None else whole)
        edges = [value for value in (*x, target_s) if value]
        if not edges:
            continue
        traces = [line("share", x, y, "c1", width=2.0, shown="%{y:.1%}")]
        shapes = [] if target_s is None else [target_line(target_s, axis="x")]
        y_axis = {"tickformat": ".0%", "range": [0.0, 1.02]}
        drawn = chart(
            title, traces, log_axis(min(edges), max(edges)), y_axis, shapes=shapes, time=False
        )
        panels.append(Panel(title, f"{about} by what it took at most", drawn))
    return panels


def failure_panel(failed: Mapping[str, int]) -> Panel | None:
    """Failures by class; None without any."""
    names = [name for name in _CLASSES if failed.get(name)]
    if not names:
        return None
    bar = {
        "type": "bar",
        "orientation": "h",
        "name": "requests",
        "x": [failed[name] for name in names],
        "y": [name.replace("_", " ") for name in names],
        "marker": {"color": "var(--bad)"},
        "hovertemplate": "%{x} %{y}<extra></extra>",
    }
    y_axis: Axis = {"autorange": "reversed", "fixedrange": True}
    x_axis: Axis = {"title": {"text": "requests"}, "rangemode": "tozero"}
    drawn = chart("Failures", [bar], x_axis, y_axis, time=False)
    return Panel("By class", "of the measured requests", drawn)
