"""`mileage cost models`: unit economics of models, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from mileage.cli.config_document import Document
from mileage.cli.cost_arguments import ModelsArguments
from mileage.cli.cost_format import money, short_count
from mileage.cli.cost_session import EMPTY, CostSession, session_of
from mileage.cli.simulate_arguments import taking
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.ledger.unit_economics import EconomicsFile, facts_with, unit_economics

__all__ = ["register_models"]

_WIDE: Final = 120
_NARROW_MODELS: Final = 3
"""Models side by side in a narrow terminal."""


def register_models(group: typer.Typer) -> None:
    """Register `models` with the group."""
    group.command(name="models")(models)


@taking(ModelsArguments)
def models(context: typer.Context, arguments: ModelsArguments) -> None:
    """Compare models: what an answer costs, a right answer, and how many a card gives in a day.

    Accuracy and review rates are yours to tell. Idle time is paid by use here. Exits with 3 where
    there is no model to compare.

    Example: mileage cost models --accuracy qwen3-32b=0.85 --accuracy llama-3.1-8b=0.68
    --review llama-3.1-8b=0.2 --review-usd 1.5
    """
    facts = _facts(arguments)
    session = session_of(arguments)
    window = session.window(arguments.since, arguments.until)
    names = session.names("model")
    rows = session.day_rows(window, names.texts)
    bill = session.bill(rows, names, "use", window)
    try:
        baseline, found = unit_economics(bill.accounts, facts, baseline=arguments.baseline)
    except ConfigError as error:
        raise error.named("--baseline") from None
    warnings = [] if rows else [EMPTY]
    if any(row.requests and row.usd_per_request is None for row in found):
        warnings.append("some GPUs have no price: mileage cost prices")
    document = {
        "window": window.document(),
        "baseline": baseline,
        "accuracy_of": facts.accuracy_of,
        "models": [msgspec.structs.asdict(row) for row in found],
        "warnings": warnings,
    }
    if arguments.as_json:
        typer.echo(msgspec.json.encode(document))
    else:
        _show(session, document)
    if not found:
        raise typer.Exit(3)


def _facts(arguments: ModelsArguments) -> EconomicsFile:
    facts = EconomicsFile() if arguments.facts is None else _file(arguments.facts)
    if arguments.review_usd is not None:
        require_range("--review-usd", arguments.review_usd, 0.0, 1e6)
        facts = msgspec.structs.replace(facts, review_usd=arguments.review_usd)
    return facts_with(
        facts,
        {
            "accuracy_ratio": _pairs("--accuracy", arguments.accuracy, 1.0),
            "review_ratio": _pairs("--review", arguments.review, 1.0),
            "usd_per_request": _pairs("--usd-per-request", arguments.usd_per_request, 1e6),
        },
    )


def _file(path: Path) -> EconomicsFile:
    try:
        return Document(path, {}, {}, EconomicsFile).decode(EconomicsFile)
    except ConfigError as error:
        raise error.named("--facts") if error.key == "--config" else error from None


def _pairs(option: str, texts: Sequence[str] | None, high: float) -> dict[str, float]:
    """MODEL=NUMBER, where a model's name may have an = of its own."""
    found = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not 0.0 <= number <= high:
            raise ConfigError(option, text, f"MODEL=NUMBER, a number from 0 to {high:g}")
        found[name] = number
    return found


def _show(session: CostSession, document: dict[str, Any]) -> None:
    code, rate = session.billing.currency, session.billing.currency_per_usd or 1.0
    rows = document["models"]
    columns = [
        (document["accuracy_of"], "accuracy_ratio", _ratio),
        ("reviewed", "review_ratio", _ratio),
        ("requests", "requests", lambda v: short_count(v) if v else "-"),
        (f"{code}/request", "usd_per_request", lambda v: money(v, rate)),
        ("with review", "usd_per_answer", lambda v: money(v, rate)),
        ("per right one", "usd_per_correct_answer", lambda v: money(v, rate)),
        ("per card, day", "requests_per_gpu_day", short_count),
        ("busy", "requests_per_gpu_day_busy", short_count),
        ("cost", "cost_ratio", lambda v: f"x{v:.3g}"),
    ]
    shown = [c for c in columns if any(row[c[1]] not in (None, 0) for row in rows)]
    console = wide_console()
    narrow = console.width < _WIDE
    for start in range(0, len(rows), _NARROW_MODELS if narrow else max(1, len(rows))):
        part = rows[start : start + _NARROW_MODELS] if narrow else rows
        console.print(_columns(part, shown, document) if narrow else _lines(part, shown, document))
    if rows:
        told = f"compared with {document['baseline']}; idle time is paid by use"
        console.print(Text(safe_text(told).plain, style="dim"))
    else:
        console.print(Text("no model: none in the ledger, none in --facts"))
    for warning in document["warnings"]:
        console.print(Text(f"! {warning}", style="yellow"))


def _lines(
    rows: Sequence[Mapping[str, Any]], shown: Sequence[Any], document: Mapping[str, Any]
) -> Table:
    """A line per model."""
    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="ellipsis", no_wrap=True, min_width=10, max_width=40)
    for name, _, _ in shown:
        table.add_column(name, justify="right")
    for row in rows:
        base = row["model"] == document["baseline"]
        cells = (_cell(row[key], text) for _, key, text in shown)
        table.add_row(safe_text(row["model"]), *cells, style="bold" if base else "")
    return table


def _columns(
    rows: Sequence[Mapping[str, Any]], shown: Sequence[Any], document: Mapping[str, Any]
) -> Table:
    """A column per model, where a line has no room for all figures."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for row in rows:
        base = row["model"] == document["baseline"]
        heading = safe_text(row["model"])
        table.add_column(heading, justify="right", style="bold" if base else "", overflow="fold")
    for name, key, text in shown:
        table.add_row(name, *(_cell(row[key], text) for row in rows))
    return table


def _cell(value: Any, text: Callable[[Any], str]) -> str:
    return "-" if value is None else text(value)


def _ratio(value: float) -> str:
    return f"{value:.1%}"
