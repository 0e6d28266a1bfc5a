"""What `mileage doctor profile` shows to people: the command and its price, or the answer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.doctor.collect.kernel_name import shown_kernel
from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.doctor.profile_answer import profile_answer
from mileage.doctor.profile_plan import ProfilePlan, Topic

__all__ = ["show_plan", "show_readings"]

_ROWS_MAX: Final = 10


def show_plan(plan: ProfilePlan, console: Console | None = None) -> None:
    """The commands, to be pasted, on lines of their own."""
    console = console or wide_console()
    directory = () if plan.tool == "torch" else (("mkdir", plan.directory),)
    for words in (*directory, *plan.commands):
        console.print(Text(shlex.join(words)), soft_wrap=True)
    console.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("costs", plan.cost)
    table.add_row("disturbs", plan.disturbs)
    table.add_row("needs", plan.install)
    read = f"mileage doctor profile {plan.topic} --read {shlex.quote(plan.result)}"
    if plan.tool == "torch":
        read = f"mileage doctor profile {plan.topic} --read TRACE.json.gz"
    table.add_row("then", Text(read))
    console.print(table)


def show_readings(
    topic: Topic, readings: Sequence[ProfileReading], console: Console | None = None
) -> None:
    """The answer first, then of each file its figures and what took longest."""
    console = console or wide_console()
    console.print(Text.assemble((profile_answer(topic, readings), "bold")))
    for reading in readings:
        console.print()
        console.print(Text.assemble((f"{reading.tool}  ", "dim"), safe_text(reading.place)))
        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="dim", no_wrap=True)
        figures.add_column()
        for name, value in reading.figures.items():
            figures.add_row(name, _shown(name, value))
        console.print(figures)
        if reading.kernels:
            console.print(_kernels(reading))
        for name, share in reading.functions[:_ROWS_MAX]:
            console.print(Text.assemble(f"{share:6.1%}  ", safe_text(name)))
        for note in reading.notes:
            console.print(Text(f"note: {note}", style="dim"))
    console.print()


def _kernels(reading: ProfileReading) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    counted = any(k.dram_active_ratio is not None for k in reading.kernels)
    names = ["share", "time", "launches", "for", *(["memory", "SMs"] if counted else []), "kernel"]
    for name in names:
        table.add_column(name, justify="left" if name in ("for", "kernel") else "right")
    total_s = sum(kernel.total_s for kernel in reading.kernels)
    for kernel in reading.kernels[:_ROWS_MAX]:
        share = f"{kernel.total_s / total_s:.1%}" if total_s else "–"
        row = [share, f"{kernel.total_s * 1e3:,.3f} ms", f"{kernel.count:,}", kernel.kind]
        if counted:
            row += [_percent(kernel.dram_active_ratio), _percent(kernel.sm_throughput_ratio)]
        table.add_row(*row, safe_text(shown_kernel(kernel.name)))
    return table


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.0%}"


def _shown(name: str, value: float) -> str:
    if name.endswith("_ratio"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if name.endswith("_count") else f"{value:.4g}"
