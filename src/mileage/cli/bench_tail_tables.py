"""What `mileage bench tail` shows to people: the first cause, its evidence, and every stage."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_format import latency, percent
from mileage.cli.bench_tail_watch import Source
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.measure.tail_report import TailReport

__all__ = ["show_tail", "tail_line", "tail_rows"]


def show_tail(
    report: TailReport, sources: Sequence[Source], console: Console | None = None
) -> None:
    """The report, for people."""
    console = console or wide_console()
    console.print(tail_line(report))
    console.print()
    console.print(_stages(report))
    console.print()
    for source in sources:
        mark = "seen" if source.seen else "not seen"
        console.print(
            Text.assemble((f"{source.name}: ", "dim"), f"{mark}: ", safe_text(source.detail))
        )
    console.print()
    for said in report.evidence:
        console.print(Text.assemble("- ", safe_text(said)))
    console.print(Text(report.verdict, style="bold"))


def tail_line(report: TailReport) -> str:
    """Which requests were compared."""
    left_out = sum(report.left_out.values())
    more = f"; {left_out} that did not end well have no latency" if left_out else ""
    return (
        f"{report.tail_requests} requests of {report.requests} from {latency(report.threshold_s)} "
        f"on ({report.latency}, on average {latency(report.tail_mean_s)}), against "
        f"{report.typical_requests} typical ones ({latency(report.typical_mean_s)}){more}"
    )


def tail_rows(report: TailReport) -> list[tuple[str, tuple[str, ...]]]:
    """Name and cells of each stage: tail, its share, typical, its share, excess, its share."""
    return [
        (
            share.title,
            (
                latency(share.tail_s),
                percent(share.tail_ratio),
                latency(share.typical_s),
                percent(share.typical_ratio),
                latency(share.excess_s),
                "-" if share.excess_ratio is None else percent(share.excess_ratio),
            ),
        )
        for share in report.stages
    ]


def _stages(report: TailReport) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    for name in ("tail", "share", "typical", "share", "excess", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, (name, cells) in enumerate(tail_rows(report)):
        style = "bold" if number == 0 and report.first is not None else ""
        table.add_row(name, *cells, style=style)
    return table
