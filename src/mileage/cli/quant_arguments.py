"""Options of `mileage quant kv`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["KvArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvArguments:
    """What is asked for, and on which text."""

    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="A Hugging Face model's directory or a GGUF file, whose weights are dequantised.",
        ),
    ] = None
    budget_kl: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="KL that is allowed: of the next token's distribution from that of the model as "
            "it is, mean over tokens.",
        ),
    ] = None
    bits: Annotated[
        float | None,
        typer.Option(
            metavar="BITS",
            help="Bits per value that are allowed, scales with them; in place of --budget-kl.",
        ),
    ] = None
    text: Annotated[
        Path | None,
        typer.Option(
            help="Text that formats are chosen on: as much like what is served as can be. "
            "[default: the doctor's pages]"
        ),
    ] = None
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Text that the mix is judged on. [default: every other window of the text]"
        ),
    ] = None
    window: Annotated[int, typer.Option(min=32, max=8192, help="Tokens that are read at once.")] = (
        256
    )
    windows: Annotated[
        int, typer.Option(min=1, max=1000, help="Windows that formats are chosen on.")
    ] = 2
    held_out_windows: Annotated[
        int, typer.Option(min=2, max=1000, help="Windows that the mix is judged on.")
    ] = 6
    measured: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps what was measured: written where it is not there, else read, so "
            "that other budgets take no search."
        ),
    ] = None
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads. [default: one a core]")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
