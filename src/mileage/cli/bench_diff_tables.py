"""What `mileage bench diff` shows to people: both runs, ratios, and what else differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_format import amount, energy, latency, memory, percent, rate, usd
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = ["show_diff"]

_FORMS: Final[tuple[tuple[str, Callable[[float], str]], ...]] = (
    ("_s", latency),
    ("_ratio", percent),
    ("_bytes", memory),
    ("_rps", rate),
    ("energy_j_per_token", energy),
    ("usd_per_million_tokens", usd),
)
_STYLES: Final = {"better": "green", "worse": "red"}
_OVERALL: Final = {"better": "bold green", "worse": "bold red", "no_difference": "bold"}


def show_diff(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Two runs, for people."""
    console = console or wide_console()
    for arm, run in document["runs"].items():
        text = f"{run['file']}: {run['workload']}, {run['model']}, {run['started_at_utc']}"
        console.print(Text.assemble((f"{arm.upper()}  ", "bold"), safe_text(text)))
    console.print()
    console.print(_metrics(document))
    if document["differences"]:
        console.print()
        console.print(Text("What else differs", style="bold"))
        console.print(_differences(document))
    console.print()
    for line in document["warnings"]:
        console.print(Text.assemble("! ", safe_text(line), style="yellow"))
    style = _OVERALL.get(document["verdict"], "bold yellow")
    console.print(Text(safe_text(document["reason"]).plain, style=style))


def _metrics(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("A", "B", "B / A", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for name, each in document["metrics"].items():
        form = _form(name)
        mark = " *" if name in document["deciding"] else ""
        cells = ["-" if each[arm] is None else form(each[arm]) for arm in "ab"]
        ratio = "-" if each["ratio"] is None else f"{each['ratio']:.3g}"
        interval = ""
        if each["ci95"] is not None:
            interval = f"{each['ci95'][0]:.3g} to {each['ci95'][1]:.3g}"
        verdict = each["verdict"] or ""
        word = Text(verdict.replace("_", " "), style=_STYLES.get(verdict, "dim"))
        table.add_row(f"{name}{mark}", *cells, ratio, interval, word)
    table.caption = "* decides the verdict"
    table.caption_justify = "left"
    return table


def _form(name: str) -> Callable[[float], str]:
    if name.endswith("_per_s"):
        return rate
    return next((form for end, form in _FORMS if name.endswith(end)), amount)


def _differences(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "A", "B"):
        table.add_column(name, overflow="fold")
    for each in document["differences"]:
        cells = [safe_text("-" if each[arm] is None else each[arm]) for arm in "ab"]
        table.add_row(safe_text(each["name"]), *cells)
    return table
