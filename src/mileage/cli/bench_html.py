"""The HTML report of `mileage bench --report`: what is in it, and the file that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mileage import __version__
from mileage.cli.bench_figures import FIGURES, LATENCIES, QUANTILES, value_at
from mileage.cli.bench_format import count, latency, percent, rate
from mileage.cli.bench_lines import (
    endpoint_line,
    load_line,
    requests_line,
    verdict_line,
    warnings_of,
)
from mileage.cli.bench_result import BenchRun
from mileage.cli.html_report import write_page

__all__ = ["flat", "write_report"]

_TILES: Final = (
    ("slo_attainment_ratio", "met their targets", percent),
    ("goodput_rps", "goodput", rate),
    ("ttft_s.p99", "TTFT p99", latency),
    ("itl_s.p99", "ITL p99", latency),
    ("e2e_s.p99", "E2E p99", latency),
    ("output_tokens_per_s", "output tokens", rate),
    ("utilisation_ratio", "utilisation", percent),
)


def write_report(path: Path, run: BenchRun, document: Mapping[str, Any]) -> None:
    """Write the report of this run; the file is whole, or as it was before. Raises ConfigError, and
    FileError where writing fails."""
    write_page(path, _page(run, document))


def _page(run: BenchRun, document: Mapping[str, Any]) -> str:
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.bench_report import BenchReport, render
    from mileage.dashboard.report_page import ReportRow

    tiles = [("failed", count(sum(document["requests_failed"].values())))]
    for key, name, form in _TILES:
        value = value_at(document, key)
        if value is not None:
            tiles.append((name, form(value)))
    latencies = []
    for key, name in LATENCIES:
        if value_at(document, f"{key}.p50") is not None:
            cells = tuple(_latency(value_at(document, f"{key}.{q}")) for q in QUANTILES)
            latencies.append(ReportRow(name=name, cells=cells))
    report = BenchReport(
        title=f"{document['conditions'].get('model')}: a load run",
        verdict=verdict_line(document),
        lines=(
            ("Endpoint", endpoint_line(document)),
            ("Load", load_line(document)),
            ("Requests", requests_line(document)),
            ("Began", document["window"]["started_at_utc"]),
        ),
        warnings=tuple(warnings_of(document)),
        tiles=tuple(tiles),
        quantiles=QUANTILES,
        latencies=tuple(latencies),
        figures=tuple(
            ReportRow(name=figure.name, cells=(figure.shown(document),))
            for figure in FIGURES
            if figure.of(document) is not None
        ),
        errors=tuple(
            ReportRow(name=each["class"], cells=(count(each["requests"]), each["error"] or "-"))
            for each in document["errors"]
        ),
        conditions=tuple(
            ReportRow(name=name, cells=(value,)) for name, value in flat(document["conditions"])
        ),
        measured=run.measured,
        failed=document["requests_failed"],
        series=run.series(),
        use=run.use_series,
        slo=run.slo,
        start_s=run.load.start_s,
        end_s=run.load.end_s,
        zero_monotonic_s=run.load.zero_monotonic_s,
        version=__version__,
    )
    return render(report)


def _latency(value: float | None) -> str:
    return "-" if value is None else latency(value)


def flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names with dots and texts of all that is in a tree; what is None is left out."""
    found: list[tuple[str, str]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{prefix}{name}.")
        elif value is not None and value != []:
            found.append((f"{prefix}{name}", str(value)))
    return found
