"""The page of an HTML report: one file with all it needs, which asks no network for more."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files

import msgspec
from plotly.offline import get_plotlyjs

from mileage.dashboard.report_chart import Chart

__all__ = ["ReportPage", "ReportRow", "pair", "table", "text"]


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table: a cell per column, and which of them is best or worst (1, -1, else 0)."""

    name: str
    cells: tuple[str, ...]
    marks: tuple[int, ...] = ()


class ReportPage:
    """Collects what is on the page; `render` gives it as text. All text given is escaped."""

    def __init__(self, *, title: str, footer: str) -> None:
        self._title, self._footer = title, footer
        self._body: list[str] = []
        self._charts: dict[str, Chart] = {}

    def add(self, *parts: str) -> None:
        """Put pieces of HTML, made by this module, at the end."""
        self._body += parts

    def head(self, verdict: str, lines: Sequence[tuple[str, str]]) -> None:
        """The line that says it all, and names with texts below it."""
        listed = "".join(f"<dt>{text(name)}</dt><dd>{text(what)}</dd>" for name, what in lines)
        self.add(f'<p class="verdict">{text(verdict)}</p><dl class="what">{listed}</dl>')

    def tiles(self, tiles: Sequence[tuple[str, str]]) -> None:
        """The main figures."""
        cells = "".join(
            f'<div class="tile"><dt>{text(name)}</dt><dd>{text(value)}</dd></div>'
            for name, value in tiles
        )
        self.add(f'<dl class="tiles">{cells}</dl>')

    def place(self, chart: Chart, label: str) -> str:
        """Where the chart will be drawn; `label` tells those who cannot see it."""
        name = f"chart{len(self._charts)}"
        self._charts[name] = chart
        return f'<div class="chart" id="{name}" role="img" aria-label="{text(label)}"></div>'

    def render(self) -> str:
        """The whole page. It has its scripts inside, and allows no others."""
        directory = files("mileage.dashboard") / "report"
        style = (directory / "report.css").read_text("utf-8")
        scripts = [get_plotlyjs(), (directory / "report.js").read_text("utf-8")]
        # Only these may run, whatever a name or a trace has brought along.
        allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
        policy = (
            f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
            "img-src data: blob:"
        )
        data = json.dumps(self._charts, allow_nan=False, separators=(",", ":"))
        data = data.replace("<", "\\u003c")
        running = "".join(f"<script>{script}</script>\n" for script in scripts)
        title, body = text(self._title), "\n".join(self._body)
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
<footer>{text(self._footer)}</footer>
<script type="application/json" id="charts">{data}</script>
{running}</body>
</html>
"""


def pair(*sections: str) -> str:
    """Sections side by side, two in a row as far as the window is wide enough."""
    return f'<div class="pairs">{"".join(sections)}</div>'


def table(
    title: str,
    rows: Sequence[ReportRow],
    columns: Sequence[str] = (),
    *,
    note: str = "",
    kind: str = "numbers",
) -> str:
    """A section with a table; `columns`: what is above its cells. `kind`: numbers or texts."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in columns)
    body = "".join(_table_row(row) for row in rows)
    about = f"<p>{text(note)}</p>" if note else ""
    top = f"<thead><tr><td></td>{head}</tr></thead>" if columns else ""
    return (
        f'<section><h2>{text(title)}</h2>{about}<div class="scroll"><table class="{kind}">'
        f"{top}<tbody>{body}</tbody></table></div>"
        "</section>"
    )


def _table_row(row: ReportRow) -> str:
    cells = []
    if len(row.cells) > 1 and not row.marks and len(set(row.cells)) == 1:
        cells.append(f'<td colspan="{len(row.cells)}">{text(row.cells[0])}</td>')
    for number, cell in enumerate(row.cells if not cells else ()):
        if not row.marks:
            cells.append(f"<td>{text(cell)}</td>")
            continue
        mark = row.marks[number]
        kind, sign = {1: ("best", "▲"), -1: ("worst", "▼")}.get(mark, ("", ""))
        cells.append(f'<td class="{kind}">{text(cell)}<i> {sign}</i></td>')
    part = ' class="part"' if row.name.startswith(" ") else ""
    return f'<tr{part}><th scope="row">{text(row.name.strip())}</th>{"".join(cells)}</tr>'


def text(value: object) -> str:
    """The value for HTML: nothing in it is markup."""
    return html.escape(str(value))


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
