"""What `mileage cost bottleneck` shows to people: the verdicts, and all that they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_format import percent
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.measure.bottleneck import Bottleneck, GpuBottleneck
from mileage.measure.bottleneck_verdict import Verdict
from mileage.scrape.telemetry_sampler import SamplerStatus

__all__ = ["headline", "show_bottleneck"]

_UNKNOWN_SHOWN: Final = 4
_NAMES: Final = {
    "compute": "compute bound",
    "memory": "memory bound",
    "interconnect": "interconnect bound",
    "host": "host bound",
}


def show_bottleneck(
    result: Bottleneck, states: Mapping[str, SamplerStatus], console: Console | None = None
) -> None:
    """The result, for people."""
    console = console or wide_console()
    for gpu in result.gpus:
        console.print(Text(headline(gpu), style="bold"))
        console.print(_table(gpu))
        for verdict in gpu.verdicts:
            for note in verdict.notes:
                console.print(Text(f"{verdict.dimension}: {note}"))
        for doubt in gpu.doubts:
            console.print(Text.assemble("not believed: ", safe_text(doubt)))
        console.print()
    if not result.gpus:
        console.print(Text("Not enough evidence: no GPU was seen.", style="bold"))
    for name, why in result.missing.items():
        console.print(Text.assemble((f"{name}: ", "dim"), safe_text(why)))
    for name, state in states.items():
        console.print(
            Text(
                f"{name}: {state.looks} looks, each {state.period_s * 1e3:.0f} ms, for"
                f" {state.cpu_ratio:.2%} of a CPU",
                style="dim",
            )
        )


def headline(gpu: GpuBottleneck) -> str:
    """One sentence: `GPU 0 (NVIDIA H100): memory bound (high confidence)`."""
    name = "The processor" if gpu.gpu.label == "cpu" else f"GPU {safe_text(gpu.gpu.label)}"
    if gpu.model is not None:
        name += f" ({safe_text(gpu.model)})"
    if gpu.bound:
        said = ", ".join(f"{_NAMES[v.dimension]} ({v.confidence} confidence)" for v in gpu.bound)
    elif gpu.outcome == "none":
        said = "no bottleneck"
    else:
        unknown = dict.fromkeys(f for v in gpu.verdicts if v.held is None for f in v.unknown)
        said = "not enough evidence"
        shown = ", ".join(list(unknown)[:_UNKNOWN_SHOWN])
        more = len(unknown) - _UNKNOWN_SHOWN
        said += f": not known: {shown}" if unknown else ""
        said += f" and {more} more" if more > 0 else ""
    busy = "" if gpu.busy_mean_ratio is None else f", busy {percent(gpu.busy_mean_ratio)}"
    return f"{name}: {said}{busy}"


def _table(gpu: GpuBottleneck) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("dimension")
    table.add_column("held", justify="right")
    for name in ("condition", "mean", "p95", "met in", "looks"):
        table.add_column(name, justify="left" if name == "condition" else "right")
    for verdict in gpu.verdicts:
        for place, evidence in enumerate(verdict.evidence):
            first = place == 0
            table.add_row(
                verdict.dimension if first else "",
                _held(verdict) if first else "",
                f"{evidence.figure} {evidence.comparison} {evidence.threshold:g}",
                _value(evidence.mean),
                _value(evidence.p95),
                "-" if evidence.met_ratio is None else percent(evidence.met_ratio),
                str(evidence.samples),
            )
    return table


def _held(verdict: Verdict) -> str:
    if verdict.held_ratio is None:
        return "unknown"
    share = percent(verdict.held_ratio)
    return f"{share}?" if verdict.held is None else share


def _value(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
