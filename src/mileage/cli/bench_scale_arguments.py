"""Options of `mileage bench scale`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_options import AdminTokenEnv, AdminTokenFile, AsJson, Report

__all__ = ["Balance", "ScaleArguments"]

Balance = Literal["turns", "least"]
"""How calls are dealt to replicas: in turns, or to that with the fewest on their way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleArguments(LoadArguments):
    """Of `mileage bench scale`: --rate and --concurrency are of each replica."""

    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL...", help="The replicas, in the order in which they are added."
        ),
    ] = None
    launch: Annotated[
        str | None,
        typer.Option(
            help="In place of URLs: a server to start, once for each replica, and to end: 'vllm "
            "serve M --port {port}'. {index} counts from 0: CUDA_VISIBLE_DEVICES={index} before "
            "it. No shell sees it."
        ),
    ] = None
    gateway: Annotated[
        str | None,
        typer.Option(
            help="In place of URLs: a Mileage gateway, whose replicas its admin plane enables and "
            "disables."
        ),
    ] = None
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Of --launch: how many at most."),
    ] = None
    numbers: Annotated[
        str | None,
        typer.Option(help="Numbers of replicas to measure: 1,2,4,8. [default: each up to all]"),
    ] = None
    balance: Annotated[
        str,
        typer.Option(
            help="How calls are dealt to URLs or servers of --launch: turns, or least (to the "
            "replica with the fewest on their way)."
        ),
    ] = "turns"
    repeats: Annotated[
        int,
        typer.Option(min=1, max=100, help="Runs of each number, up and down in turns."),
    ] = 2
    admin_url: Annotated[
        str,
        typer.Option(help="Of --gateway: its admin plane."),
    ] = "http://127.0.0.1:8081"
    admin_token_env: AdminTokenEnv = None
    admin_token_file: AdminTokenFile = None
    ready_timeout: Annotated[
        str,
        typer.Option(help="For a server, or a gateway's replica, to be ready."),
    ] = "10m"
    report: Report = None
    as_json: AsJson = False
