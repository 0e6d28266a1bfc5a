"""`mileage roofline`: what one step of a model on a GPU is bound by, operator by operator."""

from __future__ import annotations

import sys
from typing import Annotated, cast

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from mileage.cli.model_source import model_source
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.layout import Engine
from mileage.costmodel.precision import KvPrecision
from mileage.costmodel.roofline import OperatorReport, RooflineReport, report

__all__ = ["roofline"]

_ENGINES = ("vllm", "sglang", "trtllm")
_WIDTH_MIN = 100
"""Columns of the tables: a narrower terminal wraps lines, rather than that figures are left out."""
_KEYS = {
    "model": "--model",
    "tensor_parallel": "--tp",
    "precision": "--weights",
    "batch": "--batch",
}
"""The option that sets what an error of the cost model names."""


def roofline(
    model: Annotated[
        str,
        typer.Option(help="A known model, or the path of a Hugging Face config.json or GGUF file."),
    ],
    gpu_name: Annotated[str, typer.Option("--gpu", help="A known GPU: h100, a100-80gb, h20.")],
    tp: Annotated[int, typer.Option(min=1, help="GPUs that each layer is cut among.")] = 1,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Precision of weights: bf16, fp8, int8, int4, fp4. [default: bf16; of a GGUF "
            "file: as it is]"
        ),
    ] = None,
    kv: Annotated[str, typer.Option(help="Precision of the KV cache: bf16 or fp8.")] = "bf16",
    engine: Annotated[str, typer.Option(help="Engine: vllm, sglang or trtllm.")] = "vllm",
    batch: Annotated[int, typer.Option(min=0, help="Requests that decode a token.")] = 1,
    context: Annotated[int, typer.Option(min=0, help="Tokens of each one's context.")] = 1024,
    prefill: Annotated[int, typer.Option(min=0, help="Prompt tokens in the step.")] = 0,
    against: Annotated[str | None, typer.Option(help="Another GPU to compare with.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what one step of an engine takes: time, FLOPs, bytes, and what binds.

    Example: mileage roofline --model qwen3-32b --gpu h20 --against a100 --batch 64 --context 4096
    """
    if engine not in _ENGINES:
        raise ConfigError("--engine", engine, f"one of {', '.join(_ENGINES)}")
    if kv not in ("bf16", "fp8"):
        raise ConfigError("--kv", kv, "bf16 or fp8")
    reports = []
    for option, name in (("--gpu", gpu_name), ("--against", against)):
        if name is None:
            continue
        try:
            source = model_source(model)
            deployment = Deployment(
                model=source.architecture,
                gpu=gpu(name),
                tensor_parallel=tp,
                weights=source.precision(weights),
                kv=cast(KvPrecision, kv),
                engine=cast(Engine, engine),
            )
            load = {"batch": batch, "context_tokens": context, "prefill_tokens": prefill}
            reports.append(report(deployment, **load))
        except ConfigError as error:
            key = option if error.key == "gpu" else _KEYS.get(error.key, error.key)
            raise error.named(key) from None
    if as_json:
        document = {"reports": reports} if against else reports[0]
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    console = Console(highlight=False)
    if console.width < _WIDTH_MIN:
        console = Console(width=_WIDTH_MIN, highlight=False)
    for each in reports:
        _show(console, each)
    if against:
        first, second = reports
        ratio = first.step_s / second.step_s
        console.print(f"{first.gpu} takes {ratio:.2f} times as long as {second.gpu}.")


def _show(console: Console, found: RooflineReport) -> None:
    title = f"{found.model} on {found.gpus} x {found.gpu}: {found.step_s * 1e3:.2f} ms a step"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("operator", "ms", "%", "GFLOP", "MB", "MB sent", "FLOP/byte", "bound by"):
        words = name in ("operator", "bound by")
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for each in found.operators:
        table.add_row(each.name, *_figures(each, found.step_s), each.bound)
    console.print(table)
    console.print(
        f"Mostly bound by {found.bound}. Of the peaks: {found.compute_utilisation_ratio:.0%} of "
        f"half-precision compute, {found.bandwidth_utilisation_ratio:.0%} of bandwidth; the ridge "
        f"is at {found.ridge_flops_per_byte:.0f} FLOPs per byte."
    )
    if found.kv_tokens > found.kv_tokens_max:
        console.print(
            f"It does not fit: the step has {found.kv_tokens:,} tokens of context, and memory is "
            f"left for {found.kv_tokens_max:,}."
        )


def _figures(each: OperatorReport, step_s: float) -> list[str]:
    intensity = f"{each.flops / each.bytes:.1f}" if each.bytes and each.flops else ""
    return [
        f"{each.time_s * 1e3:.3f}",
        f"{each.time_s / step_s:.1%}",
        f"{each.flops / 1e9:.1f}" if each.flops else "",
        f"{each.bytes / 1e6:.1f}" if each.bytes else "",
        f"{each.link_bytes / 1e6:.1f}" if each.link_bytes else "",
        intensity,
    ]
