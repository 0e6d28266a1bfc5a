"""The HTML report of `mileage bench ab --report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mileage.cli.bench_ab_tables import COLUMNS, ab_rows, about_lines, warning_lines
from mileage.cli.html_report import write_page

__all__ = ["ab_html", "write_ab"]

_MARKS: Final = {"better": 1, "worse": -1}


def write_ab(path: Path, document: Mapping[str, Any]) -> None:
    """Write the report; the file is whole, or as it was before. Raises FileError."""
    write_page(path, ab_html(document))


def ab_html(document: Mapping[str, Any]) -> str:
    """The page, of a run's document."""
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.ab_report import AbInterval, AbPage, ab_page
    from mileage.dashboard.report_page import ReportRow

    rows = [
        ReportRow(
            name=name,
            cells=cells,
            marks=(0, 0, 0, 0, _MARKS.get(verdict or "", 0)),
        )
        for name, cells, verdict in ab_rows(document)
    ]
    intervals = [
        AbInterval(name=name, ratio=metric["ratio"], low=metric["ci95"][0], high=metric["ci95"][1])
        for name, _, _ in ab_rows(document)
        if (metric := document["metrics"][name])["ci95"] is not None
    ]
    return ab_page(
        AbPage(
            title="A/B run",
            verdict=document["reason"],
            facts=(
                *about_lines(document),
                *(("Beware", line) for line in warning_lines(document)),
            ),
            columns=COLUMNS,
            rows=tuple(rows),
            intervals=tuple(intervals),
            footer=f"mileage {document['version']}",
        )
    )
