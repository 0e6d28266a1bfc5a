"""Options of `mileage cost`: what each command takes, and what is said about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.bench_options import AsJson
from mileage.cli.ledger_options import ConfigFile, LedgerDirectory

__all__ = [
    "AnomaliesArguments",
    "CostArguments",
    "ForecastArguments",
    "ModelsArguments",
    "PricesArguments",
    "SourceArguments",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArguments:
    """Of every command: where the ledger is, which hours, and how they are read."""

    config: ConfigFile = None
    ledger: LedgerDirectory = None
    timezone: Annotated[
        str | None,
        typer.Option(help="Of days and months. [default: billing.timezone of the configuration]"),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CostArguments(SourceArguments):
    """Of the bill."""

    by: Annotated[
        str,
        typer.Option(
            help="One account per tenant, team, model, adapter, key, replica, label:NAME, request, "
            "hour, day or month."
        ),
    ] = "tenant"
    since: Annotated[
        str,
        typer.Option(
            help="From then on: 24h, 30d, a date (and time), this-month, last-month, today or "
            "yesterday."
        ),
    ] = "30d"
    until: Annotated[
        str | None,
        typer.Option(
            help="Up to then: a date is its first moment, so what follows the last day. "
            "[default: the end of --since where it has one, else now]"
        ),
    ] = None
    spread: Annotated[
        str | None,
        typer.Option(
            help="Who pays for idle GPUs: none, use or reservation. [default: of the configuration]"
        ),
    ] = None
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Only so many accounts, the dearest; the others as one. [default: all; of "
            "requests 1000]",
        ),
    ] = None
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the bill as a page with charts.")
    ] = None
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write the accounts as a table; - for stdout.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesArguments(SourceArguments):
    """Of `mileage cost prices`."""

    gpu: Annotated[
        list[str] | None,
        typer.Option(help="Price of this GPU, as h100 or L40S. [default: those of the ledger]"),
    ] = None
    at: Annotated[str | None, typer.Option(help="On this day. [default: today]")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastArguments(SourceArguments):
    """Of `mileage cost forecast`."""

    by: Annotated[
        str,
        typer.Option(
            help="One account per tenant, team, model, adapter, key, replica or label:NAME."
        ),
    ] = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomaliesArguments(ForecastArguments):
    """Of `mileage cost anomalies`."""

    since: Annotated[
        str, typer.Option(help="Hours from then on: 24h, 7d, a date, today, this-month.")
    ] = "7d"
    until: Annotated[str | None, typer.Option(help="Up to then. [default: now]")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsArguments(SourceArguments):
    """Of `mileage cost models`."""

    since: Annotated[
        str, typer.Option(help="From then on: 24h, 30d, a date, this-month, last-month.")
    ] = "30d"
    until: Annotated[str | None, typer.Option(help="Up to then. [default: now]")] = None
    facts: Annotated[
        Path | None,
        typer.Option(help="TOML file of what the ledger cannot know: [models.NAME]."),
    ] = None
    accuracy: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=RATIO: right answers of all, as qwen3-32b=0.85."),
    ] = None
    review: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=RATIO: answers that a person looks at, of all."),
    ] = None
    review_usd: Annotated[
        float | None, typer.Option(help="USD for one look of a person at an answer.")
    ] = None
    usd_per_request: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=USD: what a request costs, of a model that is served elsewhere."),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(help="Compare with this model. [default: the one with most requests]"),
    ] = None
