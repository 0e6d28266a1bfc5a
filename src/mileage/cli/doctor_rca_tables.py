"""What `mileage doctor rca` shows to people."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mileage.cli.doctor_rca_text import (
    anomaly_text,
    effect_text,
    moment,
    precedent_text,
    rca_headline,
    relation_text,
)
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.doctor.rca.analyse import Analysis
from mileage.doctor.rca.propagation import Root
from mileage.doctor.rca.series import History, plain_name

__all__ = ["show_analysis"]

_COLOURS: Final = {"finding": "yellow", "clear": "green", "not_enough_evidence": "cyan"}
_ROWS: Final = 12
_OTHERS: Final = 3


def show_analysis(analysis: Analysis, history: History, console: Console | None = None) -> None:
    """The analysis, for people."""
    console = console or wide_console()
    head = safe_text(rca_headline(analysis, history))
    head.stylize(f"bold {_COLOURS[analysis.verdict]}")
    console.print(head)
    if analysis.roots:
        _show_root(console, analysis, history)
    if analysis.anomalies:
        _show_anomalies(console, analysis, history)
    _show_relations(console, analysis)
    if analysis.actions:
        console.print()
        for action in analysis.actions:
            told = Text.assemble(("do: ", "dim"), safe_text(action.text), (": ", "dim"))
            console.print(told.append_text(safe_text(action.why)))
            if action.command is not None:
                console.print(Text.assemble("    ", safe_text(action.command)))
    console.print()
    console.print(Text(_looked_at(analysis, history), style="dim"))
    for note in analysis.notes:
        console.print(Text.assemble(("note: ", "dim"), safe_text(note)))
    for missing in analysis.missing:
        console.print(Text.assemble(("would help: ", "dim"), safe_text(missing)))


def _show_root(console: Console, analysis: Analysis, history: History) -> None:
    root = analysis.roots[0]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in root.parts:
        table.add_row(name, f"{value:+.2f}")
    _rows(table, "before it", [precedent_text(each) for each in analysis.before])
    _rows(table, "explains", [effect_text(each, history.step_s) for each in root.effects])
    _rows(table, "at the same time", [plain_name(node) for node in root.simultaneous])
    others = [_other(each) for each in analysis.roots[1 : 1 + _OTHERS]]
    _rows(table, "rather than", others)
    console.print(Padding(table, (0, 0, 0, 3)))


def _other(root: Root) -> str:
    why = ", ".join(plain_name(node) for node in root.explained_by)
    told = f"{plain_name(root.node)} (score {root.score:.2f})"
    return f"{told}, explained by {why}" if why else told


def _rows(table: Table, name: str, lines: list[str]) -> None:
    for place, line in enumerate(lines[:_ROWS]):
        table.add_row(name if place == 0 else "", safe_text(line))
    if lines[_ROWS:]:
        table.add_row("", f"... {len(lines) - _ROWS} more (--json)")


def _show_anomalies(console: Console, analysis: Analysis, history: History) -> None:
    console.print()
    for anomaly in analysis.anomalies[:_ROWS]:
        told = Text.assemble(safe_text(plain_name(anomaly.node)), ": ")
        told.append_text(safe_text(anomaly_text(anomaly, history)))
        console.print(told.append(f"  {anomaly.score:.1f} sigmas", "dim"))
    if analysis.anomalies[_ROWS:]:
        console.print(Text(f"... {len(analysis.anomalies) - _ROWS} more (--json)", style="dim"))


def _show_relations(console: Console, analysis: Analysis) -> None:
    if not analysis.relations:
        return
    console.print()
    told = [each for each in analysis.relations if each.found != "too_little"]
    for relation in told[:_ROWS]:
        console.print(safe_text(relation_text(relation)))


def _looked_at(analysis: Analysis, history: History) -> str:
    since = history.at_utc_s(history.first)
    until = history.at_utc_s(history.points)
    return (
        f"{analysis.series_looked_at} series from {moment(since)} to {moment(until)} UTC in points "
        f"of {history.step_s:g} s, with {history.first} points before; "
        f"{'; '.join(analysis.methods) or 'nothing to learn from'}"
    )
