"""The HTML report of a diagnosis: the number first, then each cause with evidence and remedy."""

from __future__ import annotations

import html
import re

import msgspec

from mileage.dashboard.report_chart import Axis, Chart, chart, line
from mileage.dashboard.report_page import ReportPage, ReportRow, table, text

__all__ = ["DoctorCause", "DoctorPage", "DoctorSeries", "doctor_page"]


CODE = re.compile(r"`([^`]+)`")


class DoctorCause(msgspec.Struct, frozen=True, kw_only=True):
    """One finding as the page shows it; `evidence`: signal, value, limit, side."""

    title: str
    label: str
    severity: str
    confidence: float
    loss: str
    loss_basis: str
    evidence: tuple[tuple[str, str, str, str], ...]
    remedy: str
    proof_command: str
    consequences: tuple[str, ...]
    consequence: bool
    gain: str = ""
    gain_basis: str = ""
    effects: tuple[str, ...] = ()
    """When its changes take effect."""
    risk: str = ""


class DoctorSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A signal over the window."""

    name: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


class DoctorPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    verdict: str
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[tuple[str, str], ...]
    causes: tuple[DoctorCause, ...]
    series: tuple[DoctorSeries, ...]
    known: tuple[tuple[str, str], ...]
    """Every fact that it rests on: name and value."""
    missing: tuple[str, ...]
    footer: str


def doctor_page(page: DoctorPage) -> str:
    """The page as HTML, with all that it needs."""
    report = ReportPage(title="Diagnosis", footer=page.footer)
    report.head(page.verdict, page.facts)
    report.tiles(page.tiles)
    if page.causes:
        place = report.place(_confidences(page.causes), "Confidence of each finding")
        height = 70 + 34 * len(page.causes)
        place = place.replace('class="chart"', f'class="chart" style="height: {height}px"', 1)
        report.add(_section("How sure", f'<div class="charts"><figure>{place}</figure></div>'))
    for cause in page.causes:
        report.add(_cause(cause))
    if page.series:
        drawn = "".join(
            f"<figure>{report.place(_line(each), each.name)}</figure>" for each in page.series
        )
        report.add(_section("What was seen", f'<div class="charts">{drawn}</div>'))
    if page.missing:
        listed = ", ".join(f"<code>{text(name)}</code>" for name in page.missing)
        report.add(_section("What else would help", f"<p>{listed}</p>"))
    rows = tuple(ReportRow(name=name, cells=(value,)) for name, value in page.known)
    if rows:
        report.add(table("Facts it rests on", rows, ("value",), kind="texts"))
    return report.render()


def _cause(cause: DoctorCause) -> str:
    rows = tuple(
        ReportRow(name=signal, cells=(value, limit, side))
        for signal, value, limit, side in cause.evidence
    )
    told = [
        f"<p>{text(cause.label)}, {text(cause.severity)}, {cause.confidence:.0%} sure."
        f" Cost per month: <strong>{text(cause.loss)}</strong>{_because(cause.loss_basis)}</p>",
    ]
    if cause.gain:
        because = _because(cause.gain_basis)
        told.append(_paragraph(f"Expected gain: <strong>{text(cause.gain)}</strong>{because}"))
    if cause.consequence:
        told.append("<p>A consequence of a cause above.</p>")
    if cause.consequences:
        told.append(f"<p>It brings about: {text('; '.join(cause.consequences))}</p>")
    told.append(table("", rows, ("value", "limit", "speaks"), kind="texts"))
    told.append(_paragraph(f"<strong>What to do.</strong> {_coded(cause.remedy)}"))
    told += [_paragraph(f"{_coded(effect)}.") for effect in cause.effects]
    if cause.risk:
        told.append(_paragraph(f"<strong>Risk.</strong> {_coded(cause.risk)}"))
    told.append(
        f'<pre style="white-space: pre-wrap"><code>{text(cause.proof_command)}</code></pre>'
    )
    return _section(cause.title, "".join(told))


def _paragraph(inner: str) -> str:
    return f'<p style="margin: 0.5em 0">{inner}</p>'


def _coded(told: str) -> str:
    """What stands between backticks, as code."""
    return CODE.sub(r"<code>\1</code>", text(told))


def _because(basis: str) -> str:
    return f" ({text(basis)})" if basis else ""


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{text(title)}</h2>{inner}</section>"


def _confidences(causes: tuple[DoctorCause, ...]) -> Chart:
    ordered = causes[::-1]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [cause.confidence for cause in ordered],
        "y": [html.escape(cause.label) for cause in ordered],
        "text": [f"{cause.confidence:.0%}" for cause in ordered],
        "textposition": "auto",
        "marker": {"color": [_colour(cause) for cause in ordered]},
        "hovertemplate": "%{y}: %{x:.0%}<extra></extra>",
        "showlegend": False,
    }
    x_axis: Axis = {"range": [0, 1], "tickformat": ".0%"}
    return chart("confidence", [bars], x_axis, {"type": "category"}, time=False)


def _colour(cause: DoctorCause) -> str:
    return "var(--quiet)/0.6" if cause.consequence or cause.severity == "info" else "var(--c1)"


def _line(series: DoctorSeries) -> Chart:
    drawn = line(series.name, series.times_s, series.values, "c1")
    y_axis: Axis = {"rangemode": "tozero", "title": {"text": html.escape(series.name)}}
    return chart(series.name, [drawn], {"title": {"text": "s"}}, y_axis)
