"""What `mileage bench ab` shows to people: the metrics side by side, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_ab_document import HEADLINES
from mileage.cli.bench_format import amount, energy, latency, memory, percent, usd
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = ["COLUMNS", "ab_rows", "about_lines", "show_ab", "warning_lines"]

COLUMNS: Final = ("a", "b", "b / a", "interval", "verdict")
_WORDS: Final = {"no_difference": "no difference seen", "invalid": "not compared"}
_STYLES: Final = {"better": "green", "worse": "red", "mixed": "red", "invalid": "yellow"}
_FORMATS: Final[tuple[tuple[str, Callable[[float], str]], ...]] = (
    ("energy_j", energy),
    ("usd", usd),
    ("memory_bytes", memory),
    ("_ratio", percent),
    ("_per_s", amount),
    ("_rps", amount),
    ("_s", latency),
)


def show_ab(document: Mapping[str, Any], console: Console | None = None) -> None:
    """One A/B run, for people."""
    console = console or wide_console()
    for title, line in about_lines(document):
        console.print(Text.assemble((f"{title:10}", "bold"), safe_text(line)))
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in COLUMNS[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(COLUMNS[-1])
    for name, cells, verdict in ab_rows(document):
        style = _STYLES.get(verdict or "", "")
        bold = "bold" if name in document["deciding"] else ""
        shown = [Text(cell) for cell in cells[:-1]]
        table.add_row(Text(name, style=bold), *shown, Text(safe_text(cells[-1]).plain, style=style))
    console.print()
    console.print(table)
    console.print()
    for line in warning_lines(document):
        console.print(Text.assemble("! ", safe_text(line), style="yellow"))
    style = f"bold {_STYLES.get(document['verdict'], '')}".strip()
    console.print(Text(safe_text(document["reason"]).plain, style=style))


def about_lines(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was compared, under what load, for how long."""
    lines = []
    for arm in ("a", "b"):
        side = document["arms"][arm]
        changed = ", ".join(f"{name}={value}" for name, value in side["settings"].items())
        parts = [side["url"], str(side["model"]), *([changed] if changed else [])]
        lines.append((f"Arm {arm}", ", ".join(parts)))
    plan = document["plan"]
    load = f"{document['workload']['name']}, {document['pairs']} pairs of slots"
    if plan["slot_requests"] is None:
        load += f" of {plan['slot_s']:g} s ({plan['wash_out_s']:.3g} s of them wash-out)"
    else:
        load += (
            f" of {plan['slot_requests']} requests ({plan['wash_out_requests']} of them wash-out)"
        )
    lines.append(("Load", f"{load}, {plan['mode']}"))
    return lines


def ab_rows(document: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Name, cells and verdict of the metrics that decide, and of the headlines."""
    names = dict.fromkeys((*document["deciding"], *HEADLINES))
    return [
        (name, _cells(name, document["metrics"][name]), document["metrics"][name]["verdict"])
        for name in names
    ]


def _cells(name: str, metric: Mapping[str, Any]) -> tuple[str, ...]:
    if metric["a"] is None or metric["b"] is None:
        return "-", "-", "-", "-", metric["text"]
    text = next(form for part, form in _FORMATS if part in name)
    ratio, span = metric["ratio"], metric["ci95"]
    verdict = metric["verdict"]
    if metric["better"] is None and verdict != "invalid":
        word = "-"
    else:
        word = _WORDS.get(verdict, verdict)
    basis = f" ({metric['basis'].replace('_', ' ')})" if metric["basis"] else ""
    return (
        text(metric["a"]),
        text(metric["b"]),
        "-" if ratio is None else f"{ratio:.3f}",
        "-" if span is None else f"{span[0]:.3f} to {span[1]:.3f}",
        f"{word}{basis}",
    )


def warning_lines(document: Mapping[str, Any]) -> list[str]:
    """What to know beside the verdict; what made it invalid is in its own words."""
    found = [guard["text"] for guard in document["guards"] if not guard["invalid"]]
    found += document["notes"]
    if document["verdict"] == "no_difference" and not document["enough_evidence"]:
        for each in document["outlook"]:
            if each["duration_s"] is None:
                continue
            found.append(
                f"to see a change of {each['effect_ratio']:.1%} in {each['metric']} takes about"
                f" {each['pairs']} pairs, {each['duration_s'] / 60:.0f} min"
            )
    if document["interrupted"]:
        found.append("interrupted: the result up to there")
    return found
