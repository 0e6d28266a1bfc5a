"""`mileage cost prices`: what an hour of each GPU costs, since when, and who says so."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from mileage.cli.cost_arguments import PricesArguments
from mileage.cli.cost_session import CostSession, session_of
from mileage.cli.cost_source import usage_source
from mileage.cli.simulate_arguments import taking
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as gpu_named
from mileage.ledger.calendar import start_of_day
from mileage.ledger.price_book import PriceBook

__all__ = ["register_prices"]

_WIDE: Final = 120


def register_prices(group: typer.Typer) -> None:
    """Register `prices` with the group."""
    group.command(name="prices")(prices)


@taking(PricesArguments)
def prices(context: typer.Context, arguments: PricesArguments) -> None:
    """Show which price holds for each GPU, its date, and who says so.

    Exits with 3 where a price is not known.

    Example: mileage cost prices --gpu h100 --gpu l40s
    """
    session = session_of(arguments)
    at_utc_s = session.now_utc_s
    if arguments.at is not None:
        try:
            at_utc_s = start_of_day(dt.date.fromisoformat(arguments.at), session.zone)
        except (ValueError, OverflowError):
            raise ConfigError("--at", arguments.at, "a day, such as 2026-01-31") from None
    if arguments.gpu:
        asked = [("", _gpu(name), 1.0) for name in arguments.gpu]
    else:
        asked = _of_ledger(session)
    rows = [
        _row(session.book, at_utc_s, replica=replica, gpu=gpu, gpus=gpus)
        for replica, gpu, gpus in asked
    ]
    if arguments.as_json:
        typer.echo(msgspec.json.encode({"at_utc_s": at_utc_s, "prices": rows}))
    else:
        _show(rows)
    if not rows or any(row["usd_per_gpu_hour"] is None for row in rows):
        raise typer.Exit(3)


def _gpu(name: str) -> str:
    """What the catalogue calls it."""
    try:
        return gpu_named(name).name
    except ConfigError as error:
        raise error.named("--gpu") from None


def _of_ledger(session: CostSession) -> list[tuple[str, str, float]]:
    """Replicas of the last 30 days, as they were last seen."""
    window = session.window("30d", None)
    with usage_source(session.config, session.arguments.ledger) as source:
        rows = source.capacity(window.since_utc_s, window.until_utc_s)
        last = {row.replica: row for row in sorted(rows, key=lambda row: row.hour_at_utc_s)}
    return [(row.replica, row.gpu, row.gpus) for _, row in sorted(last.items())]


def _row(book: PriceBook, at_utc_s: int, *, replica: str, gpu: str, gpus: float) -> dict[str, Any]:
    price = book.price(at_utc_s, replica=replica, gpu=gpu, gpus=gpus)
    row: dict[str, Any] = {"replica": replica or None, "gpu": gpu or None, "gpus": gpus}
    if price is None:
        return {**row, "usd_per_gpu_hour": None, "basis": None, "source": None, "date": None}
    return {
        **row,
        "usd_per_gpu_hour": price.usd_per_gpu_hour,
        "basis": price.basis,
        "source": price.source,
        "date": price.date,
        "energy_usd_per_gpu_hour": float(price.energy_nano_usd_per_gpu_hour / 1_000_000_000),
        "note": price.note,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    console = wide_console()
    if not rows:
        console.print(Text("no GPU to price: none in the ledger's last 30 days; --gpu NAME"))
        return
    of_replicas = any(row["replica"] for row in rows)
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False)
    names = ["replica"] if of_replicas else []
    for name in (*names, "GPU", "USD/GPU-h", "by", "since or of", *(["source"] if wide else [])):
        right = name == "USD/GPU-h"
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    sources: dict[str, str] = {}
    for row in rows:
        usd = row["usd_per_gpu_hour"]
        source = row["source"] or "no price is known: [[billing.prices]] can tell one"
        source = f"{source}; {row['note']}" if row.get("note") else source
        sources.setdefault(source, row["replica"] or row["gpu"] or "unknown")
        table.add_row(
            *([safe_text(row["replica"])] if of_replicas else []),
            safe_text(row["gpu"] or "unknown"),
            "-" if usd is None else f"{usd:.4g}",
            row["basis"] or "-",
            row["date"] or "-",
            *([safe_text(source)] if wide else []),
        )
    console.print(table)
    if not wide:
        for source, first in sources.items():
            console.print(Text(safe_text(f"{first}: {source}").plain, style="dim"))
