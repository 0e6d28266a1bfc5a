"""The charts of a simulation's report: over time, one of each kind per arm, and distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
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
from mileage.sim.outcome import OK
from mileage.sim.simulation import SimResult
from mileage.sim.summary import Summary
from mileage.sim.timeline import Timeline, timeline_of

__all__ = ["ReportArm", "Row", "distribution_charts", "time_rows"]

_PER_HOUR_S: Final = 3600.0
_COLOURS: Final = 6


class ReportArm(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation of a report."""

    name: str
    result: SimResult
    summary: Summary
    usd_per_gpu_hour: float | None = None


class Row(NamedTuple):
    """Charts of one kind, one per arm, on the same scale."""

    title: str
    about: str
    charts: list[Chart]


class _Time(NamedTuple):
    """An arm's course, and where its bins are on the axis."""

    arm: ReportArm
    line: Timeline
    x: list[float]


_Draw = Callable[[_Time], list[dict[str, Any]]]


def time_rows(arms: Sequence[ReportArm], slo: Slo, gaps: str) -> list[Row]:
    """How it went over time."""
    unit_s, unit = time_unit(max(arm.result.duration_s for arm in arms))
    times = []
    for arm in arms:
        course = timeline_of(arm.result)
        start_s = arm.result.start_s
        middle_s = course.width_s / 2
        x = [round((at - start_s + middle_s) / unit_s, 4) for at in course.time_s]
        times.append(_Time(arm, course, x))
    axis = {
        "title": {"text": f"{unit} since the first arrival"},
        "range": [0.0, max(arm.result.duration_s for arm in arms) / unit_s],
    }
    rows = [
        _latency_row("Time to first token", "ttft", times, axis, slo.ttft_s),
        _latency_row(
            "Inter-token latency",
            "itl_mean" if gaps == "mean" else "itl_p99",
            times,
            axis,
            slo.itl_s,
            about=f"the {gaps} of each request's own gaps between tokens",
        ),
        _row("Requests in the fleet", "of all replicas", times, axis, _requests, "~s"),
        _row("Traffic", "requests per second", times, axis, _traffic, "~s"),
        _row(
            "Utilisation",
            "busy: share of the time with a step in progress; KV cache: share of its blocks",
            times,
            axis,
            _utilisation,
            ".0%",
            limits=(0.0, 1.02),
        ),
        _row("Output", "tokens per second of complete answers", times, axis, _output, "~s"),
    ]
    if any(arm.usd_per_gpu_hour is not None for arm in arms):
        about = "USD per million output tokens, from the start to then"
        rows.append(_row("Cost", about, times, axis, _cost, "$~g"))
    return rows


def _latency_row(
    title: str,
    kind: str,
    times: Sequence[_Time],
    x_axis: Axis,
    target_s: float | None,
    *,
    about: str = "of the requests that arrived then",
) -> Row:
    every = [value for time in times for q in time.line.latency_s[kind].values() for value in q]
    y_axis = latency_range(every, target_s)
    charts = []
    for time in times:
        columns = time.line.latency_s[kind]
        traces = band(time.x, columns["p50"], columns["p99"], "c1")
        for name, colour, width in (("p50", "c1", 2.0), ("p95", "c2", 1.6), ("p99", "c4", 1.2)):
            shown = "%{y:.3s}s"
            traces.append(line(name, time.x, columns[name], colour, width=width, shown=shown))
        shapes = [] if target_s is None else [target_line(target_s)]
        charts.append(chart(time.arm.name, traces, x_axis, y_axis, shapes=shapes))
    if target_s is not None:
        about += "; dashed: the target"
    return Row(title, about, charts)


def _row(
    title: str,
    about: str,
    times: Sequence[_Time],
    x_axis: Axis,
    draw: _Draw,
    tickformat: str,
    *,
    limits: tuple[float, float] | None = None,
) -> Row:
    drawn = [draw(time) for time in times]
    values = [y for traces in drawn for trace in traces for y in trace["y"] if y is not None]
    top = max(values, default=1.0) or 1.0
    y_axis = {"tickformat": tickformat, "range": list(limits or (0.0, top * 1.08))}
    charts = [
        chart(time.arm.name, traces, x_axis, y_axis)
        for time, traces in zip(times, drawn, strict=True)
    ]
    return Row(title, about, charts)


def _requests(time: _Time) -> list[dict[str, Any]]:
    fleet, x = time.line.fleet, time.x
    traces = [
        line("running", x, fleet["running"], "c1", width=2.0),
        line("waiting in the engines", x, fleet["waiting"], "c4"),
        line("held by the governor", x, fleet["held"], "c2"),
    ]
    most = max((value for value in fleet["running"] if value is not None), default=0.0)
    limit = fleet["limit"]
    highest = max((value for value in limit if value is not None), default=0.0)
    if 0.0 < highest <= 4.0 * max(most, 8.0):  # a limit far above would flatten the rest
        traces.append(line("limit", x, limit, "quiet", width=1.2, dash="dot"))
    return traces


def _traffic(time: _Time) -> list[dict[str, Any]]:
    course, x = time.line, time.x

    def per_s(counts: Sequence[int]) -> list[float | None]:
        return [count / course.width_s for count in counts]

    traces = [
        line("arrivals", x, per_s(course.arrivals), "c1", width=2.0),
        line("completions", x, per_s(course.completions), "c3"),
    ]
    if any(course.unanswered):
        traces.append(line("refused or lost", x, per_s(course.unanswered), "bad"))
    return traces


def _utilisation(time: _Time) -> list[dict[str, Any]]:
    fleet, x, shown = time.line.fleet, time.x, "%{y:.1%}"
    return [
        line("busy", x, fleet["busy_ratio"], "c1", width=2.0, shown=shown),
        line("KV cache", x, fleet["kv_usage_ratio"], "c2", shown=shown),
    ]


def _output(time: _Time) -> list[dict[str, Any]]:
    course = time.line
    return [
        line("tokens/s", time.x, [n / course.width_s for n in course.output_tokens], "c3", width=2)
    ]


def _cost(time: _Time) -> list[dict[str, Any]]:
    course, usd = time.line, time.arm.usd_per_gpu_hour
    if usd is None:
        return []
    result = time.arm.result
    gpus = result.gpus
    if result.gpu_s is not None and result.duration_s > 0.0:
        gpus = result.gpu_s / result.duration_s  # in the mean: they come and go
    bin_usd = usd * gpus * course.width_s / _PER_HOUR_S
    spent_usd, tokens = 0.0, 0
    y: list[float | None] = []
    for count in course.output_tokens:
        spent_usd += bin_usd
        tokens += count
        y.append(spent_usd / tokens * 1e6 if tokens else None)
    # Next to no tokens have next to endless prices: the first bins would flatten the rest.
    whole = y[-1]
    if whole is not None:
        y = [None if value is None or value > whole * 3.0 else value for value in y]
    return [line("USD/Mtok", time.x, y, "c5", width=2.0, shown="$%{y:.3f}")]


def distribution_charts(
    arms: Sequence[ReportArm], slo: Slo, gaps: str
) -> list[tuple[str, str, Chart]]:
    """Title, explanation and chart of what all requests together met, all arms in one."""
    found = []
    of_gaps = "itl_mean_s" if gaps == "mean" else "itl_p99_s"
    for title, column, target_s in (
        ("Time to first token", "ttft_s", slo.ttft_s),
        ("Inter-token latency", of_gaps, slo.itl_s),
        ("End to end", "e2e_s", None),
    ):
        curves = [_curve(arm.result, column) for arm in arms]
        traces = []
        for number, (arm, (x, y)) in enumerate(zip(arms, curves, strict=True)):
            name = arm.name if len(arms) > 1 else "share"
            colour = f"c{number % _COLOURS + 1}"
            dash = "solid" if number < _COLOURS else "dot"
            traces.append(line(name, x, y, colour, width=2.0, dash=dash, shown="%{y:.1%}"))
        known = [value for x, _ in curves for value in x if value]
        edges = [*known, *(() if target_s is None else (target_s,))]
        x_axis = log_axis(min(edges), max(edges)) if known else {}
        y_axis = {"tickformat": ".0%", "range": [0.0, 1.02]}
        shapes = [] if target_s is None else [target_line(target_s, axis="x")]
        drawn = chart(
            title, traces, x_axis, y_axis, shapes=shapes, legend=len(arms) > 1, time=False
        )
        of = "answers with several tokens" if column == of_gaps else "all requests"
        about = f"share of {of} by what it took at most"
        found.append((title, about, drawn))
    deciles = _decile_chart(arms)
    if deciles is not None:
        about = "share within targets, by tenths of the requests from short prompts to long ones"
        found.append(("Targets by prompt length", about, deciles))
    return found


def _curve(result: SimResult, column: str) -> tuple[list[float], list[float]]:
    """Distribution of what was answered, over all requests."""
    out = result.outcomes
    answered = np.array(out.status, dtype=np.int8) == OK
    values = np.array(getattr(out, column))[answered]
    values = values[~np.isnan(values)]
    # Of the times of whole requests the curve ends at the share that was answered.
    return share_curve(values, len(values) if column.startswith("itl") else len(out))


def _decile_chart(arms: Sequence[ReportArm]) -> Chart | None:
    traces = []
    for number, arm in enumerate(arms):
        deciles = arm.summary.attainment_by_prompt_decile
        if deciles:
            bar = line(arm.name, list(range(1, 11)), list(deciles), f"c{number % _COLOURS + 1}")
            colour = bar.pop("line")["color"]
            del bar["mode"]
            traces.append({**bar, "type": "bar", "marker": {"color": colour}})
    if not traces:
        return None
    x_axis = {"title": {"text": "tenth, by prompt length"}, "dtick": 1}
    y_axis = {"tickformat": ".0%", "range": [0.0, 1.02]}
    return chart("", traces, x_axis, y_axis, legend=len(arms) > 1, time=False)
