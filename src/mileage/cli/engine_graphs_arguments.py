"""The arguments of `mileage engine graphs`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Context",
    "Cover",
    "DecodeOnly",
    "EagerExtraMs",
    "FloorMs",
    "GpuGb",
    "GpuName",
    "GraphSource",
    "HorizonH",
    "MaxNumSeqs",
    "MemoryMib",
    "ModelName",
    "RowUs",
    "Seconds",
    "SizeMax",
    "SizesMax",
    "StartS",
    "TensorParallel",
    "WeightsName",
]

GraphSource = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Step files of vLLM's plugin (a *.steps file, or a directory of them: exact), a JSON "
        'object {"size": steps}, or vLLM\'s metrics page, as a file or URL (coarse).',
    ),
]
SizesMax = Annotated[int | None, typer.Option(help="At most so many sizes. [default: any number]")]
MaxNumSeqs = Annotated[int, typer.Option(help="vLLM's --max-num-seqs: its own sizes go by it.")]
SizeMax = Annotated[int, typer.Option(help="No size above this; larger steps have no graph.")]
Cover = Annotated[
    int | None,
    typer.Option(
        help="Steps of up to so many rows must have a graph; 0: none must. [default: the largest "
        "observed up to --size-max]"
    ),
]
DecodeOnly = Annotated[
    bool,
    typer.Option(
        "--decode-only",
        help="Leave out steps that computed prompt tokens (SGLang, or vLLM's FULL_DECODE_ONLY).",
    ),
]
Seconds = Annotated[
    bool, typer.Option("--seconds", help="The figures of the JSON object are seconds, not steps.")
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="Model whose step times are used, with --gpu; as of roofline."),
]
GpuName = Annotated[str | None, typer.Option("--gpu", help="GPU whose step times are used.")]
TensorParallel = Annotated[
    int, typer.Option("--tp", min=1, help="GPUs that each layer is cut among.")
]
WeightsName = Annotated[
    str | None, typer.Option("--weights", help="Precision of the weights. [default: bf16]")
]
Context = Annotated[
    int,
    typer.Option(
        "--context",
        help="Tokens of each row's context, with --model: reading them is useful time.",
    ),
]
FloorMs = Annotated[float, typer.Option(help="Without --model: ms that any step takes.")]
RowUs = Annotated[float, typer.Option(help="Without --model: microseconds of each row.")]
EagerExtraMs = Annotated[
    float | None,
    typer.Option(
        help="ms that a step takes longer without a graph. [default: 3.15, or of the model]"
    ),
]
MemoryMib = Annotated[float, typer.Option(help="MiB of one size, on each GPU.")]
StartS = Annotated[float, typer.Option(help="Seconds to capture one size.")]
GpuGb = Annotated[
    float | None,
    typer.Option(
        help="GB of the GPU's memory, of which graphs take a share. [default: 80, or of --gpu]"
    ),
]
HorizonH = Annotated[float, typer.Option(help="Hours from one start of the engine to the next.")]
