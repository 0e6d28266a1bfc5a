"""The HTML report of simulations: one file with all it needs, which asks no network for more."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

import msgspec
from plotly.offline import get_plotlyjs

from mileage.core.slo import Slo
from mileage.dashboard.sim_chart import Chart
from mileage.dashboard.sim_charts import ReportArm, Row, distribution_charts, time_rows

__all__ = ["ReportRow", "SimReport", "render"]


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table: a cell per arm, and which of them is best or worst (1, -1, else 0)."""

    name: str
    cells: tuple[str, ...]
    marks: tuple[int, ...] = ()


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
    assumptions: tuple[ReportRow, ...]
    version: str


def render(report: SimReport) -> str:
    """The page as text. It has its scripts inside, and allows no others."""
    charts: dict[str, Chart] = {}
    several = len(report.arms) > 1
    body = [_head(report)]
    if report.tiles:
        tiles = "".join(
            f'<div class="tile"><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>'
            for name, value in report.tiles
        )
        body.append(f'<dl class="tiles">{tiles}</dl>')
    all_requests = _distributions(report, charts)
    if several:
        figures = _table("Figures", report.figures, report.arms, note="▲ best, ▼ worst of a row")
        body.append(_pair(figures, all_requests))
    sections = [
        _section(row, charts, several=several)
        for row in time_rows(report.arms, report.slo, report.gaps)
    ]
    body += sections if several else [_pair(*sections), all_requests]
    assumed = _table("Assumptions", report.assumptions, report.arms, kind="texts")
    if several:
        body.append(assumed)
    else:
        body.append(_pair(_table("Figures", report.figures, report.arms), assumed))
    return _page(report, "\n".join(body), charts)


def _pair(*sections: str) -> str:
    """Sections side by side, two in a row as far as the window is wide enough."""
    return f'<div class="pairs">{"".join(sections)}</div>'


def _head(report: SimReport) -> str:
    lines = "".join(f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>" for name, text in report.lines)
    return f'<p class="verdict">{_text(report.verdict)}</p><dl class="what">{lines}</dl>'


def _section(row: Row, charts: dict[str, Chart], *, several: bool) -> str:
    figures = []
    for chart in row.charts:
        caption = f"<figcaption>{_text(chart['name'])}</figcaption>" if several else ""
        label = f"{row.title}: {chart['name']}"
        figures.append(f"<figure>{caption}{_place(chart, label, charts)}</figure>")
    least = "380px" if several else "480px"
    return (
        f"<section><h2>{_text(row.title)}</h2><p>{_text(row.about)}</p>"
        f'<div class="charts" style="--least: {least}">{"".join(figures)}</div></section>'
    )


def _distributions(report: SimReport, charts: dict[str, Chart]) -> str:
    figures = []
    for title, about, chart in distribution_charts(report.arms, report.slo, report.gaps):
        caption = f'<figcaption>{_text(title)}</figcaption><p class="about">{_text(about)}</p>'
        figures.append(f"<figure>{caption}{_place(chart, title, charts)}</figure>")
    return (
        "<section><h2>All requests</h2><p>dashed: the target</p>"
        f'<div class="charts" style="--least: 360px">{"".join(figures)}</div></section>'
    )


def _place(chart: Chart, label: str, charts: dict[str, Chart]) -> str:
    place = f"chart{len(charts)}"
    charts[place] = chart
    return f'<div class="chart" id="{place}" role="img" aria-label="{_text(label)}"></div>'


def _table(
    title: str,
    rows: Sequence[ReportRow],
    arms: Sequence[ReportArm],
    *,
    note: str = "",
    kind: str = "numbers",
) -> str:
    names = [arm.name for arm in arms] if len(arms) > 1 else []
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
    body = "".join(_table_row(row) for row in rows)
    about = f"<p>{_text(note)}</p>" if note else ""
    top = f"<thead><tr><td></td>{head}</tr></thead>" if names else ""
    return (
        f'<section><h2>{_text(title)}</h2>{about}<div class="scroll"><table class="{kind}">'
        f"{top}<tbody>{body}</tbody></table></div>"
        "</section>"
    )


def _table_row(row: ReportRow) -> str:
    cells = []
    if len(row.cells) > 1 and not row.marks and len(set(row.cells)) == 1:
        cells.append(f'<td colspan="{len(row.cells)}">{_text(row.cells[0])}</td>')
    for number, cell in enumerate(row.cells if not cells else ()):
        if not row.marks:
            cells.append(f"<td>{_text(cell)}</td>")
            continue
        mark = row.marks[number]
        kind, sign = {1: ("best", "▲"), -1: ("worst", "▼")}.get(mark, ("", ""))
        cells.append(f'<td class="{kind}">{_text(cell)}<i> {sign}</i></td>')
    part = ' class="part"' if row.name.startswith(" ") else ""
    return f'<tr{part}><th scope="row">{_text(row.name.strip())}</th>{"".join(cells)}</tr>'


def _page(report: SimReport, body: str, charts: Mapping[str, Chart]) -> str:
    directory = files("mileage.dashboard") / "report"
    style = (directory / "sim_report.css").read_text("utf-8")
    scripts = [get_plotlyjs(), (directory / "sim_report.js").read_text("utf-8")]
    # Only these may run, whatever a name or a trace has brought along.
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )
    data = json.dumps(charts, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    running = "".join(f"<script>{script}</script>\n" for script in scripts)
    title = _text(report.title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<main>
{body}
</main>
<footer>Simulated by Mileage {_text(report.version)}.</footer>
<script type="application/json" id="charts">{data}</script>
{running}</body>
</html>
"""


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _text(value: object) -> str:
    return html.escape(str(value))
