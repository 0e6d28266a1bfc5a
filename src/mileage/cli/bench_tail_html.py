"""The HTML report of `mileage bench tail`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from mileage import __version__
from mileage.cli.bench_result import BenchRun
from mileage.cli.bench_tail_tables import tail_line, tail_rows
from mileage.cli.bench_tail_watch import Source
from mileage.cli.html_report import write_page
from mileage.measure.tail_report import TailReport

__all__ = ["write_tail_report"]


def write_tail_report(
    path: Path, run: BenchRun, report: TailReport, sources: Sequence[Source]
) -> None:
    """Write the page. Raises ConfigError, FileError."""
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.tail_report import TailPage, tail_page

    page = TailPage(
        title=f"{run.conditions['model']}: where the tail comes from",
        report=report,
        lines=(
            ("Endpoint", str(run.conditions["url"])),
            ("Load", str(run.conditions["workload"]["name"])),
            ("Compared", tail_line(report)),
        ),
        rows=tuple(tail_rows(report)),
        sources=tuple((s.name, "seen" if s.seen else "not seen", s.detail) for s in sources),
        version=__version__,
    )
    write_page(path, tail_page(page))
    typer.echo(f"wrote {path}", err=True)
