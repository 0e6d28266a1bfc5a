"""Options of `mileage cost bottleneck`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["BottleneckArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckArguments:
    """Where to look, and for how long."""

    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]",
            help="A gateway or an engine, for its processes and its load. "
            "[default: http://127.0.0.1:8080]",
        ),
    ] = None
    dcgm: Annotated[list[str] | None, typer.Option(help="Page of a DCGM exporter. Repeatable.")] = (
        None
    )
    nvml: Annotated[bool, typer.Option("--nvml", help="Ask NVML for GPUs of this machine.")] = False
    gpus: Annotated[
        str | None,
        typer.Option(help="Only these: index or UUID, /INSTANCE behind it. [default: all]"),
    ] = None
    engine_url: Annotated[
        list[str] | None, typer.Option(help="Engine behind a gateway at URL. Repeatable.")
    ] = None
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="Page of metrics that tells of requests; the first that does is used. "
            "[default: URL's, and that of this machine's gateway]"
        ),
    ] = None
    file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Judge what was saved: by --save, or pages of a DCGM exporter. Repeatable."
        ),
    ] = None
    duration: Annotated[str, typer.Option("--for", help="How long to look.")] = "30s"
    every: Annotated[
        str | None,
        typer.Option(
            help="How often to look; of saved pages, the time between them. [default: 100ms; 1s]"
        ),
    ] = None
    save: Annotated[Path | None, typer.Option(help="Write what was seen to a file.")] = None
    config: Annotated[Path | None, typer.Option(help="Configuration file, mileage.toml.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
