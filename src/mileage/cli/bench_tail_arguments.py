"""Options of `mileage bench tail`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mileage.cli.bench_options import AsJson, Report
from mileage.cli.bench_watched_arguments import WatchedArguments

__all__ = ["TailArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailArguments(WatchedArguments):
    """Of `mileage bench tail URL`: which requests are the tail."""

    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Where the endpoint is: http://HOST:PORT, what /v1 follows, or with it.",
        ),
    ]
    latency: Annotated[
        str,
        typer.Option(help="e2e or ttft: the latency whose tail it is."),
    ] = "e2e"
    share: Annotated[
        float,
        typer.Option(help="The slowest share of requests: 0.001 is what is beyond P99.9."),
    ] = 0.001
    requests_min: Annotated[
        int,
        typer.Option(min=1, help="So many requests at least, though no more than a tenth of all."),
    ] = 5
    waterfalls: Annotated[
        int,
        typer.Option(min=0, help="How many of the slowest are told one by one."),
    ] = 10
    report: Report = None
    as_json: AsJson = False
