"""Options of `mileage bench sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_options import AdminTokenEnv, AdminTokenFile, AsJson, Report

__all__ = ["SweepArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepArguments(LoadArguments):
    """Of `mileage bench sweep URL`: an axis of load has several values here."""

    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Where the endpoint is; none with --launch."),
    ] = None
    concurrency: Annotated[
        str | None,
        typer.Option(help="Numbers of clients of a closed loop: 1,2,4,8,16."),
    ] = None  # type: ignore[assignment]
    rate: Annotated[
        str | None,
        typer.Option(help="Requests per second of open loops: 1,2,4."),
    ] = None  # type: ignore[assignment]
    rate_scale: Annotated[
        str | None,
        typer.Option(help="How many times as fast as the trace is: 0.5,1,2."),
    ] = None  # type: ignore[assignment]
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            max=100,
            help="Runs of each point, in passes over all points; intervals are over them.",
        ),
    ] = 3
    quantile: Annotated[
        str,
        typer.Option(help="Of TTFT and ITL, by which points are compared: p50, p90, p95 or p99."),
    ] = "p95"
    set: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE,VALUE: a hot key of a Mileage gateway's configuration, changed by its "
            "admin plane: governor.policy=static,model. May be repeated: each with each."
        ),
    ] = None
    admin_url: Annotated[
        str,
        typer.Option(help="Of --set: the gateway's admin plane."),
    ] = "http://127.0.0.1:8081"
    admin_token_env: AdminTokenEnv = None
    admin_token_file: AdminTokenFile = None
    command: Annotated[
        str | None,
        typer.Option(
            help="A command for the shell that puts a setting in force and ends: {value} in it "
            "becomes one of --values."
        ),
    ] = None
    launch: Annotated[
        str | None,
        typer.Option(
            help="A server to start and end for each of --values: 'vllm serve M --port {port} "
            "--max-num-seqs {value}'. No shell sees it."
        ),
    ] = None
    values: Annotated[
        str | None,
        typer.Option(help="Of --command or --launch: values between commas."),
    ] = None
    ready_timeout: Annotated[
        str,
        typer.Option(help="For a server to answer after --command or --launch."),
    ] = "10m"
    report: Report = None
    as_json: AsJson = False
