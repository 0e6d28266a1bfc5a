"""Options of `mileage doctor rca`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.ledger_options import ConfigFile, LedgerDirectory

__all__ = ["RcaArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RcaArguments:
    """Which time to search, in which record, and how to tell."""

    since: Annotated[
        str, typer.Option(help="Search from then on: 90m, 6h, 2d, or a date and time.")
    ] = "6h"
    until: Annotated[
        str | None,
        typer.Option(help="Search until then: as --since. [default: until now]"),
    ] = None
    history: Annotated[
        str,
        typer.Option(
            help="How much of the time before shows what is usual; two days or more tell the "
            "course of a day."
        ),
    ] = "7d"
    config: ConfigFile = None
    ledger: LedgerDirectory = None
    series: Annotated[
        Path | None,
        typer.Option(
            help="A history as JSON in place of the ledger: figures over time from anywhere, or "
            "what the admin plane's /api/v1/series gave; - reads stdin."
        ),
    ] = None
    admin_url: Annotated[
        str | None,
        typer.Option(
            help="Admin plane of a gateway: the last day of its figures in place of the ledger; "
            "with --ledger its configuration and replicas besides."
        ),
    ] = None
    admin_token_file: Annotated[
        Path | None, typer.Option(help="File with the admin plane's token.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of the isolation forest.")] = 0
    html: Annotated[Path | None, typer.Option(help="Write a page with charts.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
