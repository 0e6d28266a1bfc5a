"""`mileage cost verify`: recompute the ledger's sums of GPU time, and say where they differ."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mileage.cli.config import load_config
from mileage.cli.ledger_place import ledger_place
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.storage.usage_reader import UsageReader
from mileage.storage.usage_verify import UsageVerdict

__all__ = ["register_verify", "verify"]


def register_verify(group: typer.Typer) -> None:
    """Register `verify` with the group."""
    group.command(name="verify")(verify)


def verify(
    config: Annotated[Path | None, typer.Option(help="Configuration file, mileage.toml.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger directory. [default: of the configuration]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prove that the ledger's GPU time adds up: requests, hours, and what GPUs there were.

    Reads the whole database, beside a running gateway too. Exits with 1 where a sum differs, with 3
    where no GPU time is booked yet.

    Example: mileage cost verify
    """
    loaded = load_config(config, {})
    reader = UsageReader(ledger_place(loaded.ledger, ledger), loaded.attribution)
    try:
        verdict = reader.verify()
        settled = reader.settled_until_utc_s()
    finally:
        reader.close()
    if as_json:
        typer.echo(msgspec.json.encode(_document(reader.path, verdict, settled)))
    else:
        _show(verdict, settled)
    if verdict.problems:
        raise typer.Exit(1)
    if not verdict.hours:
        raise typer.Exit(3)


def _document(path: str, verdict: UsageVerdict, settled_utc_s: int | None) -> dict[str, Any]:
    checked = msgspec.structs.asdict(verdict)
    problems = checked.pop("problems")
    return {
        "ledger": path,
        "problems": problems,
        "checked": checked,
        "settled_until_utc_s": settled_utc_s,
    }


def _show(verdict: UsageVerdict, settled_utc_s: int | None) -> None:
    console = wide_console(highlight=True)
    for problem in verdict.problems:
        console.print(safe_text(f"problem: {problem}"))
    if not verdict.hours:
        console.print("no GPU time is booked yet: it is while `mileage serve` runs")
    elif not verdict.problems:
        console.print("every sum is proven:")
    console.print(
        safe_text(
            f"{verdict.hours} hours of replicas ({verdict.hours_by_minute} of them by the minute), "
            f"{verdict.accounts} accounts, {verdict.requests} requests "
            f"({verdict.requests_open} not booked yet), "
            f"{verdict.gpu_ns / 3.6e12:.6f} GPU-hours of requests"
        )
    )
    if settled_utc_s is not None:
        at = dt.datetime.fromtimestamp(settled_utc_s, dt.UTC).isoformat().replace("+00:00", "Z")
        console.print(safe_text(f"settled until {at}"))
