"""Options that several commands spell alike: the model, the traffic, and how an engine holds it."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Head",
    "KnownModel",
    "KvDtype",
    "MemoryShare",
    "RateScale",
    "Seed",
    "SloTargets",
    "Tenants",
    "TraceSource",
    "WeightPrecision",
    "Window",
]

KnownModel = Annotated[
    str | None,
    typer.Option(
        help="A known model, such as llama-3.1-8b or Qwen/Qwen3-32B, or the path of a "
        "Hugging Face config.json or a GGUF file."
    ),
]
TraceSource = Annotated[
    str | None,
    typer.Option(
        help="A file, a ledger's or journal's directory, -, synthetic:rate=..., or the name "
        "of a fetched data set (see mileage trace)."
    ),
]
SloTargets = Annotated[
    str | None,
    typer.Option(help="Latency targets, such as ttft=2s,itl=60ms. [default: of the configuration]"),
]
WeightPrecision = Annotated[
    str | None,
    typer.Option(
        help="Of the weights: bf16, fp8, int8, int4, fp4. [default: bf16; of a GGUF file: as it is]"
    ),
]
KvDtype = Annotated[str, typer.Option(help="Of the KV cache: bf16 or fp8.")]
MemoryShare = Annotated[
    float,
    typer.Option(help="Share of the memory that an engine uses (gpu_memory_utilization)."),
]
RateScale = Annotated[float, typer.Option(help="So many times as many arrivals per second.")]
Window = Annotated[
    str | None, typer.Option(help="START:DURATION: only arrivals in it, such as 10m:1h.")
]
Head = Annotated[int | None, typer.Option("--requests", "--head", help="At most so many requests.")]
Tenants = Annotated[list[str] | None, typer.Option(help="Only this tenant's; may be repeated.")]
Seed = Annotated[int, typer.Option(help="Of all that is random here.")]
