"""The HTML report of `mileage bench sweep --report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mileage import __version__
from mileage.cli.bench_sweep_tables import (
    PICK_NAMES,
    columns_of,
    mark_of,
    pick_lines,
    with_interval,
)
from mileage.cli.html_report import write_page

__all__ = ["sweep_html", "write_sweep"]


def write_sweep(path: Path, document: Mapping[str, Any]) -> None:
    """Write the report; the file is whole, or as it was before. Raises FileError."""
    write_page(path, sweep_html(document))


def sweep_html(document: Mapping[str, Any]) -> str:
    """The page, of a sweep's document."""
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.report_page import ReportRow
    from mileage.dashboard.sweep_report import FrontPoint, SweepPage, sweep_page

    columns = columns_of(document)
    left_out = any(point["excluded"] for point in document["points"])
    reason = ["left out because"] if left_out else []
    rows = [
        ReportRow(
            name=point["label"],
            cells=(
                mark_of(document, point) or "-",
                *(with_interval(point["figures"][key], text) for key, _, text in columns),
                *(["; ".join(point["excluded"]) or "-"] if left_out else []),
            ),
        )
        for point in document["points"]
    ]
    names = {key: title for key, title, _ in columns}
    keys = [each["figure"] for each in document["objectives"]]
    rate = next(each["figure"] for each in document["objectives"] if each["sense"] == "max")
    first, second = keys[0], keys[1] if keys[1] != rate else None
    drawn = [
        FrontPoint(
            label=point["label"],
            ttft_s=point["figures"][first]["mean"],
            itl_s=None if second is None else point["figures"][second]["mean"],
            throughput=point["figures"][rate]["mean"],
            kind=0 if point["on_front"] else 1 if point["within_noise_of_front"] else 2,
            picks=tuple(
                PICK_NAMES[name]
                for name, chosen in document["pick_indices"].items()
                if chosen == index
            ),
        )
        for index, point in enumerate(document["points"])
        if not point["excluded"]
    ]
    lines = pick_lines(document)
    return sweep_page(
        SweepPage(
            title="Sweep",
            verdict=lines[-1],
            facts=tuple(_facts(document, lines)),
            columns=("front", *(title for _, title, _ in columns), *reason),
            rows=tuple(rows),
            points=tuple(drawn),
            first_latency=names.get(first, first),
            second_latency="" if second is None else names.get(second, second),
            throughput=f"{names.get(rate, rate)} per second",
            footer=f"mileage {__version__}",
        )
    )


def _facts(document: Mapping[str, Any], lines: Any) -> list[tuple[str, str]]:
    found = []
    for line in lines[:-1]:
        name, _, told = line.partition(": ")
        found.append((name.lower(), told))
    runs = [run for point in document["points"] for run in point["runs"]]
    if runs:
        conditions = runs[0]["conditions"]
        found.append(("endpoint", f"{conditions.get('url')}, {conditions.get('model')}"))
        found.append(("requests", _requests(conditions["workload"])))
    found.append(("runs", f"{document['repeats']} of each point, in passes over all of them"))
    return found


def _requests(workload: Mapping[str, Any]) -> str:
    """What all points are asked: a trace, or lengths; their loads are what the rows differ by."""
    if "prompt_tokens" not in workload or "trace" in workload:
        return str(workload["name"])
    return f"prompts of {workload['prompt_tokens']} tokens, answers of {workload['output_tokens']}"
