"""Options of runs beside which the host and the gateway are looked at, for the tail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_options import AdminTokenEnv, AdminTokenFile

__all__ = ["WatchedArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedArguments(LoadArguments):
    """Those of every run, and what is looked at beside it."""

    engine_url: Annotated[
        list[str] | None,
        typer.Option(
            help="An engine behind the endpoint, where that is a gateway or a proxy. May be "
            "repeated."
        ),
    ] = None
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Ledger directory of a Mileage gateway: its records part the gateway's queue from "
            "the engine. [default: this machine's, if the endpoint is a Mileage gateway]"
        ),
    ] = None
    admin_url: Annotated[
        str | None,
        typer.Option(
            help="Admin plane of a Mileage gateway, for its event loop and garbage collection. "
            "[default: http://127.0.0.1:8081, if the endpoint is a Mileage gateway]"
        ),
    ] = None
    admin_token_env: AdminTokenEnv = None
    admin_token_file: AdminTokenFile = None
    no_host: Annotated[
        bool,
        typer.Option("--no-host", help="Do not look at processes and kernel of this machine."),
    ] = False
    ebpf: Annotated[
        bool,
        typer.Option(
            "--ebpf",
            help="Time waits in the kernel by bpftrace, where it is installed and allowed.",
        ),
    ] = False
