"""What `mileage bench` shows to people: the latencies, the other figures, and what to beware of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_figures import FIGURES, LATENCIES, QUANTILES, value_at
from mileage.cli.bench_format import latency
from mileage.cli.bench_lines import (
    endpoint_line,
    load_line,
    requests_line,
    verdict_line,
    warnings_of,
)
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = ["latency_table", "show_bench"]

_NOT_IN_TABLE: Final = ("requests", "requests_ok")
_TARGETS: Final = {"ttft_s": "ttft_s", "itl_request_p99_s": "itl_s"}
"""The rows that a target is of."""


def show_bench(document: Mapping[str, Any], console: Console | None = None) -> None:
    """One run, for people."""
    console = console or wide_console()
    for title, line in (
        ("Endpoint", endpoint_line(document)),
        ("Load", load_line(document)),
        ("Requests", requests_line(document)),
    ):
        console.print(Text.assemble((f"{title:10}", "bold"), safe_text(line)))
    if document["requests_ok"]:
        console.print()
        console.print(latency_table(document))
        console.print()
        console.print(_figures(document))
    console.print()
    for line in warnings_of(document):
        console.print(Text.assemble("! ", safe_text(line), style="yellow"))
    console.print(Text(safe_text(verdict_line(document)).plain, style=_style(document)))


def _style(document: Mapping[str, Any]) -> str:
    if document["error"] is not None or not document["requests_ok"]:
        return "bold red"
    if document["interrupted"] or document["generator"]["limited"]:
        return "bold yellow"
    met = document["slo_attainment_ratio"]
    if met is None:
        return "bold"
    colour = "green" if met >= 0.95 else "yellow" if met >= 0.8 else "red"
    return f"bold {colour}"


def latency_table(document: Mapping[str, Any]) -> Table:
    """Quantiles of each latency, beside its target."""
    targets = document["targets"]
    shown = any(value is not None for value in targets.values())
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in (*QUANTILES, *(("target",) if shown else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for key, name in LATENCIES:
        if value_at(document, f"{key}.p50") is None:
            continue
        target_s = targets.get(_TARGETS.get(key, ""))
        cells = [_cell(value_at(document, f"{key}.{q}"), target_s) for q in QUANTILES]
        if shown:
            cells.append(Text("" if target_s is None else latency(target_s)))
        table.add_row(name, *cells)
    return table


def _cell(value: float | None, target_s: float | None) -> Text:
    if value is None:
        return Text("-")
    missed = target_s is not None and value > target_s
    return Text(latency(value), style="red" if missed else "")


def _figures(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("", style="dim")
    server = document["server"] or {}
    for figure in FIGURES:
        if figure.key in _NOT_IN_TABLE or figure.of(document) is None:
            continue
        basis = (server.get("basis") or {}).get(figure.key, "")
        table.add_row(figure.name, figure.shown(document), basis.replace("_", " "))
    for key, why in (server.get("missing") or {}).items():
        name = key.rpartition("_")[0].replace("_", " ")
        table.add_row(f"{name} of the server", "-", safe_text(why))
    return table
