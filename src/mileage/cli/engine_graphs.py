"""`mileage engine graphs`: the sizes at which an engine should capture CUDA graphs."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table

from mileage.cli import engine_graphs_arguments as arguments
from mileage.cli.graph_histogram import GraphHistogram, read_graph_histogram
from mileage.cli.graph_plan import (
    GraphChoice,
    GraphComparison,
    GraphLimits,
    GraphStep,
    compare_graph_sizes,
    linear_graph_step,
    modelled_graph_step,
)
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.policy.graph_buckets import GRAPH_SIZE_MAX, VLLM_SIZE_MAX, GraphCost

__all__ = ["graphs"]

_MIB: Final = 1 << 20
_HOUR_S: Final = 3600.0
_DEVICE_BYTES: Final = 80e9
_OPTIONS: Final = {
    "memory_bytes": "--memory-mib",
    "start_s": "--start-s",
    "device_bytes": "--gpu-gb",
    "horizon_s": "--horizon-h",
    "max_num_seqs": "--max-num-seqs",
    "size_max": "--size-max",
    "sizes_max": "--sizes-max",
    "cover": "--cover",
}
"""The option that sets what an error names."""


def graphs(
    source: arguments.GraphSource,
    sizes_max: arguments.SizesMax = None,
    max_num_seqs: arguments.MaxNumSeqs = 256,
    size_max: arguments.SizeMax = VLLM_SIZE_MAX,
    cover: arguments.Cover = None,
    decode_only: arguments.DecodeOnly = False,
    seconds: arguments.Seconds = False,
    model: arguments.ModelName = None,
    gpu: arguments.GpuName = None,
    tp: arguments.TensorParallel = 1,
    weights: arguments.WeightsName = None,
    context: arguments.Context = 0,
    floor_ms: arguments.FloorMs = 7.46,
    row_us: arguments.RowUs = 10.5,
    eager_extra_ms: arguments.EagerExtraMs = None,
    memory_mib: arguments.MemoryMib = 26.0,
    start_s: arguments.StartS = 0.057,
    gpu_gb: arguments.GpuGb = None,
    horizon_h: arguments.HorizonH = 24.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Choose the sizes of CUDA graphs by the steps that an engine had, and compare with vLLM's.

    A step is padded to the next captured size: that time is wasted. Each size takes memory and
    time at the start. The sizes shown lose least, of all that there are.

    Exit code 1: the URL does not answer; 2: a value, or what SOURCE holds, is none.

    Example: mileage engine graphs /var/lib/mileage/ledger/steps --model llama-3.1-8b --gpu h100
    """
    try:
        found = read_graph_histogram(source, decode_only=decode_only)
        if model is not None and gpu is not None:
            rows_max = max(*found.steps, VLLM_SIZE_MAX, min(cover or 0, GRAPH_SIZE_MAX))
            step = modelled_graph_step(
                model,
                gpu,
                rows_max,
                tp=tp,
                weights=weights,
                context_tokens=context,
                eager_extra_ms=eager_extra_ms,
            )
        elif model is None and gpu is None:
            step = linear_graph_step(floor_ms, row_us, eager_extra_ms=eager_extra_ms)
        else:
            raise ConfigError("--model", model, "a model and a --gpu, or neither")
        found = _of_seconds(found, step) if seconds else found
        device_bytes = step.device_bytes or _DEVICE_BYTES
        cost = GraphCost(
            memory_bytes=memory_mib * _MIB,
            start_s=start_s,
            device_bytes=device_bytes if gpu_gb is None else gpu_gb * 1e9,
            horizon_s=horizon_h * _HOUR_S,
        )
        limits = GraphLimits(
            max_num_seqs=max_num_seqs, size_max=size_max, sizes_max=sizes_max, cover=cover
        )
        compared = compare_graph_sizes(found.steps, step, cost, limits)
    except ConfigError as error:
        raise error.named(_OPTIONS.get(error.key, error.key)) from None
    if as_json:
        typer.echo(_document(found, step, cost, compared))
    else:
        _show(found, step, cost, compared)


def _of_seconds(found: GraphHistogram, step: GraphStep) -> GraphHistogram:
    if found.kind != "json":
        raise ConfigError("--seconds", True, "a SOURCE that is a JSON object")
    steps = {rows: seconds / step.step_s(rows) for rows, seconds in found.steps.items()}
    return msgspec.structs.replace(found, steps=steps)


def _document(
    found: GraphHistogram, step: GraphStep, cost: GraphCost, compared: GraphComparison
) -> str:
    document = {
        "source": found.kind,
        "note": found.note or None,
        "steps": sum(found.steps.values()),
        "step_time": step.source,
        "eager_extra_s": step.eager_extra_s,
        "size_cost": {**msgspec.structs.asdict(cost), "ratio": cost.ratio},
        "default": compared.default,
        "optimal": compared.optimal,
        "flags": compared.flags,
    }
    return msgspec.json.encode(document).decode()


def _show(
    found: GraphHistogram, step: GraphStep, cost: GraphCost, compared: GraphComparison
) -> None:
    console = wide_console()
    rows = [size for size, steps in found.steps.items() if steps]
    console.print(
        f"{sum(found.steps.values()):,.0f} steps of {min(rows)} to {max(rows)} rows; "
        f"a step takes {safe_text(step.source)}, {step.eager_extra_s * 1e3:.2f} ms longer without "
        "a graph."
    )
    if found.note:
        console.print(f"Approximate: {found.note}.")
    table = Table("", "sizes", "padding", "no graph", "memory", "start", "together", box=None)
    for name, choice in (("vLLM's own", compared.default), ("optimum", compared.optimal)):
        table.add_row(name, *_cells(choice))
    console.print(table)
    console.print(
        f"Shares are of the GPU's time. A size costs {cost.ratio:.4%} of it: "
        f"{cost.memory_bytes / _MIB:g} MiB of {cost.device_bytes / 1e9:.0f} GB, and "
        f"{cost.start_s:g} s every {cost.horizon_s / _HOUR_S:g} h."
    )
    for name, flag in compared.flags.items():
        console.print(f"{name}:")
        typer.echo(f"  {flag}")  # whole, on one line, to be copied


def _cells(choice: GraphChoice) -> tuple[str, ...]:
    return (
        str(len(choice.sizes)),
        f"{choice.padding_ratio:.3%}",
        f"{choice.eager_ratio:.3%}",
        f"{choice.memory_bytes / _MIB:,.0f} MiB",
        f"{choice.start_s:.1f} s",
        f"{choice.total_ratio:.3%}",
    )
