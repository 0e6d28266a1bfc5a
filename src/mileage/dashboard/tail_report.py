"""The HTML report of a run's tail: its first cause, every stage, and the slowest requests."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage.dashboard.report_chart import Chart
from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table, text
from mileage.measure.tail_report import TailReport, TailSlice
from mileage.measure.tail_stage import STAGES, Role, Stage, stage_title

__all__ = ["TailPage", "tail_page"]

_BARS_MAX: Final = 9
_PER_CHART: Final = 10
_COLOURS: Final[Mapping[Stage, str]] = {
    "schedule": "quiet",
    "connect": "quiet/0.6",
    "send": "quiet/0.3",
    "transit": "c6/0.45",
    "gateway_queue": "c2",
    "upstream_wait": "c5",
    "prefill": "c1",
    "decode": "c3",
    "stall_prefill": "c4",
    "stall_engine": "bad",
    "stall": "bad/0.5",
    "answer": "c1/0.5",
    "stopped": "text",
    "gc": "c5/0.5",
    "run_queue": "c6",
    "page_fault": "c2/0.5",
    "event_loop": "c4/0.5",
    "softirq": "text/0.6",
    "steal": "text/0.45",
    "pressure": "text/0.3",
}


class TailPage(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of one run's tail."""

    title: str
    report: TailReport
    lines: tuple[tuple[str, str], ...]
    """Name and text of what was run."""
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """The table of stages, as text."""
    sources: tuple[tuple[str, str, str], ...]
    """What was looked at: name, whether it was seen, and how."""
    version: str


def tail_page(page: TailPage) -> str:
    """The page as text: one file, which asks no network for more."""
    report = page.report
    made = ReportPage(title=page.title, footer=f"Measured by Mileage {page.version}.")
    made.head(report.verdict, page.lines)
    said = "".join(f"<li>{text(line)}</li>" for line in report.evidence)
    if said:
        made.add(f"<section><h2>What shows it</h2><ul>{said}</ul></section>")
    rows = [ReportRow(name=name, cells=cells) for name, cells in page.rows]
    columns = ("tail", "share", "typical", "share", "excess", "share")
    note = "seconds per request on average; the excess is what the tail has more"
    bars = (
        "<section><h2>Tail and typical requests</h2><p>the stages with the largest excess</p>"
        f'<div class="charts" style="--least: 380px">{made.place(_bars(report), "stages")}</div>'
        "</section>"
    )
    made.add(pair(table("Stages", rows, columns, note=note), bars))
    if report.waterfalls:
        made.add(_waterfalls(made, report))
        made.add(table("The slowest, in words", _words(report), ("",), kind="texts"))
    sources = [ReportRow(name=name, cells=(seen, how)) for name, seen, how in page.sources]
    made.add(table("What was looked at", sources, ("", "how, or why not"), kind="texts"))
    return made.render()


def _bars(report: TailReport) -> Chart:
    shown = report.stages[:_BARS_MAX][::-1]
    names = [html.escape(share.title) for share in shown]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": values,
            "marker": {"color": f"var(--{colour})"},
            "hovertemplate": "%{x:.3s}s<extra>%{y}</extra>",
        }
        for name, values, colour in (
            ("typical", [share.typical_s for share in shown], "c3"),
            ("tail", [share.tail_s for share in shown], "c4"),
        )
    ]
    return {
        "name": "stages",
        "traces": traces,
        "xaxis": {"tickformat": "~s", "ticksuffix": "s"},
        "yaxis": {},
        "shapes": [],
        "legend": True,
        "time": False,
    }


def _waterfalls(made: ReportPage, report: TailReport) -> str:
    places = [
        made.place(_waterfall_chart(report, at), "the slowest requests by stage")
        for at in range(0, len(report.waterfalls), _PER_CHART)
    ]
    return (
        "<section><h2>The slowest requests</h2><p>each from when it was scheduled</p>"
        f'<div class="charts" style="--least: 700px">{"".join(places)}</div></section>'
    )


def _waterfall_chart(report: TailReport, at: int) -> Chart:
    """A row per request, the slowest on top; a trace per stage, for the legend."""
    worst = report.waterfalls[at : at + _PER_CHART]
    parts: dict[tuple[Stage, Role | None], list[tuple[int, TailSlice]]] = {}
    for row, each in enumerate(worst):
        for part in each.slices:
            parts.setdefault((part.stage, part.role), []).append((len(worst) - 1 - row, part))
    traces: list[dict[str, Any]] = []
    for (stage, role), found in sorted(parts.items(), key=lambda i: STAGES.index(i[0][0])):
        name, _, alpha = _COLOURS[stage].partition("/")
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": html.escape(stage_title(stage, role)),
                "y": [row for row, _ in found],
                "x": [part.end_s - part.start_s for _, part in found],
                "base": [part.start_s for _, part in found],
                # With an offset of their own bars of one row are not put side by side.
                "offset": -0.4,
                "width": 0.8,
                "marker": {"color": f"var(--{name})" + (f"/{alpha}" if alpha else "")},
                "text": [html.escape(_about(part)) for _, part in found],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    labels = [f"request {each.index}" for each in reversed(worst)]
    return {
        "name": "the slowest requests",
        "traces": traces,
        "xaxis": {"tickformat": "~s", "ticksuffix": "s"},
        "yaxis": {"tickvals": list(range(len(worst))), "ticktext": labels},
        "shapes": [],
        "legend": True,
        "time": False,
    }


def _about(part: TailSlice) -> str:
    said = [f"{stage_title(part.stage, part.role)}: {part.end_s - part.start_s:.3f} s"]
    if part.running is not None:
        said.append(f"{part.running} streams ran")
    for near in part.prefills:
        tokens = "unknown size" if near.prompt_tokens is None else f"{near.prompt_tokens} tokens"
        said.append(f"prompt of request {near.index} ({tokens}) for {near.overlap_s:.3f} s")
    return ", ".join(said)


def _words(report: TailReport) -> list[ReportRow]:
    rows = []
    for worst in report.waterfalls:
        longest = sorted(worst.slices, key=lambda part: part.start_s - part.end_s)[:3]
        sizes = ", ".join(
            f"{count} {what} tokens"
            for count, what in ((worst.prompt_tokens, "prompt"), (worst.output_tokens, "output"))
            if count is not None
        )
        told = "; ".join(_about(part) for part in longest)
        name = f"request {worst.index}: {worst.latency_s:.3f} s"
        rows.append(ReportRow(name=name, cells=(f"{sizes}. {told}",)))
    return rows
