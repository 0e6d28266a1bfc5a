"""The arguments of `mileage engine launch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BackoffS",
    "DrainS",
    "Executable",
    "KindName",
    "LaunchHost",
    "LaunchPort",
    "LogFile",
    "ModelName",
    "MpsLogDir",
    "MpsPercentage",
    "MpsPipeDir",
    "PlanFile",
    "Preload",
    "PreloadReserveGib",
    "Python",
    "Quiet",
    "ReadyFile",
    "ReadyHost",
    "ReadyPort",
    "ReadyTimeoutS",
    "Restarts",
    "StableS",
    "UseMps",
    "Warm",
    "WarmTimeoutS",
    "Words",
]

KindName = Annotated[
    str, typer.Argument(metavar="ENGINE", help="vllm, sglang, llamacpp, or command for any other.")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FLAGS",
        help="After --: the engine's own flags, as they are. Of command: the whole command line, "
        "in which {port} and {host} are put in.",
    ),
]
Executable = Annotated[
    str | None, typer.Option(help="The engine's program. [default: vllm, llama-server]")
]
Python = Annotated[
    str | None, typer.Option(help="Python of the environment that has vLLM or SGLang.")
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", help="Plan whose flags it gets (see engine config); FLAGS go before."),
]
ModelName = Annotated[str | None, typer.Option("--model", help="Path or name of the model.")]
LaunchHost = Annotated[str | None, typer.Option("--host", help="Where it serves. [127.0.0.1]")]
LaunchPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        help="Its port; 0: a free one. [the engine's own; llama.cpp: 8090]",
    ),
]
ReadyPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Serve /ready here: 503, and 200 once it gives tokens."),
]
ReadyHost = Annotated[str, typer.Option(help="Address of --ready-port.")]
ReadyFile = Annotated[
    Path | None,
    typer.Option(help="File that is there, with the start's phases, while it is ready."),
]
ReadyTimeoutS = Annotated[float, typer.Option(help="Seconds until its first token must be there.")]
Warm = Annotated[
    list[str] | None,
    typer.Option(
        help="PROMPTxBATCH: so many requests at once, of so many tokens each. Repeatable. "
        "[default: 1x1, a step's tokens, a batch up to the active limit]"
    ),
]
WarmTimeoutS = Annotated[float, typer.Option(help="Seconds for one request of the warm-up.")]
DrainS = Annotated[float, typer.Option(help="Seconds between SIGTERM and SIGKILL.")]
Restarts = Annotated[int, typer.Option(help="Failures in a row after which it stays down.")]
BackoffS = Annotated[
    float, typer.Option("--restart-backoff-s", help="Pause before a restart; doubles, up to 60 s.")
]
StableS = Annotated[float, typer.Option(help="Ready for so long, it has not failed in a row.")]
LogFile = Annotated[
    Path | None, typer.Option("--log", help="Write its output here too; put aside at 64 MiB.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show the engine's own output.")]
Preload = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|auto",
        help="Read the model's files into the page cache meanwhile; auto: those of its model.",
    ),
]
PreloadReserveGib = Annotated[float, typer.Option(help="GiB of memory that --preload leaves free.")]
UseMps = Annotated[
    bool,
    typer.Option("--mps", help="Run it under CUDA's Multi-Process Service, started if needed."),
]
MpsPercentage = Annotated[
    int | None,
    typer.Option("--mps-active-thread-percentage", help="Share of the GPU's threads it may use."),
]
MpsPipeDir = Annotated[
    str | None,
    typer.Option("--mps-pipe-dir", help="Pipes of the daemon; several launches may share one."),
]
MpsLogDir = Annotated[str | None, typer.Option("--mps-log-dir", help="Logs of the daemon.")]
