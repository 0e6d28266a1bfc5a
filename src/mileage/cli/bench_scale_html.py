"""The HTML report of `mileage bench scale --report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mileage import __version__
from mileage.cli.bench_scale_tables import row_of, scale_columns, scale_lines
from mileage.cli.html_report import write_page

__all__ = ["scale_html", "write_scale"]


def write_scale(path: Path, document: Mapping[str, Any]) -> None:
    """Write the report; the file is whole, or as it was before. Raises FileError."""
    write_page(path, scale_html(document))


def scale_html(document: Mapping[str, Any]) -> str:
    """The page, of a scale-out's document."""
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.report_page import ReportRow
    from mileage.dashboard.scale_report import ScaleChartPoint, ScalePage, scale_page
    from mileage.measure.scaling import UniversalLaw

    columns = scale_columns(document)
    law = None if document["law"] is None else UniversalLaw(**document["law"])
    judged = [point for point in document["points"] if point["scaling"] is not None]
    points = []
    for point in judged:
        scaled, figure = point["scaling"], point["figures"][document["throughput"]]
        first = judged[0]["scaling"]
        each = first["throughput"] / first["replicas"]
        points.append(
            ScaleChartPoint(
                replicas=point["replicas"],
                throughput=scaled["throughput"],
                low=None if figure is None else figure["low"],
                high=None if figure is None else figure["high"],
                linear=each * point["replicas"],
                law=None if law is None else law.throughput(point["replicas"]),
                efficiency_ratio=scaled["efficiency_ratio"],
                latency_s=scaled["latency_s"],
            )
        )
    lines = scale_lines(document)
    facts = [_fact(text) for text in lines[1:]]
    facts.append(("load", f"{document['load']} loop, {document['repeats']} runs of each number"))
    return scale_page(
        ScalePage(
            verdict=lines[0],
            facts=tuple(facts),
            columns=tuple(name or "kind" for name in columns),
            rows=tuple(
                ReportRow(name=str(point["replicas"]), cells=tuple(row_of(document, point)))
                for point in document["points"]
            ),
            points=tuple(points),
            throughput=columns[0].capitalize(),
            footer=f"mileage {__version__}",
        )
    )


def _fact(line: str) -> tuple[str, str]:
    """A sentence of the result with its own name before it."""
    name, colon, rest = line.partition(": ")
    if not colon:
        name, _, rest = line.strip().partition(" ")
    return name.lower(), rest
