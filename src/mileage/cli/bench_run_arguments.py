"""Options of `mileage bench URL`: one run, and all that is told and written of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.bench_options import AsJson, Report
from mileage.cli.bench_watched_arguments import WatchedArguments

__all__ = ["BenchArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchArguments(WatchedArguments):
    """Of `mileage bench URL`."""

    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="Where the endpoint is: http://HOST:PORT, what /v1 follows, or with it.",
        ),
    ] = None
    metrics_url: Annotated[
        str | None,
        typer.Option(
            help="The engine's Prometheus page, for utilisation, memory and its own means. "
            "[default: URL/metrics, if there is one; none: do not ask]"
        ),
    ] = None
    dcgm_url: Annotated[
        str | None,
        typer.Option(help="Page of a DCGM exporter that has the endpoint's GPUs."),
    ] = None
    gpu_id: Annotated[
        list[str] | None,
        typer.Option(
            help="A GPU of the endpoint, there or on this machine; `all`: every one. May be "
            "repeated. [default: those that a process of the server on this machine uses]"
        ),
    ] = None
    tail: Annotated[
        bool,
        typer.Option(
            "--tail",
            help="Also tell where the latency of the slowest requests comes from, as mileage bench "
            "tail does; --engine-url, --ledger, --admin-url, --no-host and --ebpf are of it, too.",
        ),
    ] = False
    save: Annotated[
        Path | None,
        typer.Option(help="Write all that was seen to this file, for mileage bench diff."),
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option(help="Write a row per request to this file."),
    ] = None
    parquet: Annotated[
        Path | None,
        typer.Option(help="The same as Parquet; needs pyarrow (mileage[parquet])."),
    ] = None
    report: Report = None
    as_json: AsJson = False
