"""What `mileage bench scale` shows to people: a row per number of replicas, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_format import latency, percent, rate
from mileage.cli.bench_sweep_tables import with_interval
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = ["RESOURCES", "row_of", "scale_columns", "scale_lines", "show_scale"]

RESOURCES: Final = {
    "generator": "the load generator",
    "gateway_core": "one core of the gateway",
    "gpu": "a GPU",
    "cpu": "the cores of the machine",
    "other_programs": "the cores of the machine, which other programs use",
    "hypervisor": "the cores that the hypervisor gives",
    "memory": "the memory of the machine",
    "disk": "the disk",
    "network": "the network",
    "memory_bandwidth": "caches or memory bandwidth",
    "none_seen": "none seen",
}
_THROUGHPUT: Final = {
    "output_tokens_per_s": "output tokens",
    "requests_per_s": "answers",
    "goodput_rps": "goodput",
}


def scale_columns(document: Mapping[str, Any]) -> list[str]:
    """Names of the columns behind the number of replicas."""
    name = _THROUGHPUT[document["throughput"]]
    return [
        name,
        "per replica",
        "added brings",
        "",
        "TTFT p95",
        "E2E p95",
        "cores busy",
        "CPU/token",
    ]


def row_of(document: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
    """Cells of a number of replicas."""
    figures, scaled = point["figures"], point["scaling"]
    uses = [each["use"] for each in point["evidence"] if each["use"] is not None]
    tokens = [each["cpu_s_per_token"] for each in point["evidence"]]
    known = [value for value in tokens if value is not None]
    marginal = None if scaled is None else scaled["marginal_ratio"]
    return [
        with_interval(figures[document["throughput"]], rate),
        "-" if scaled is None else percent(scaled["efficiency_ratio"]),
        "-" if marginal is None else percent(marginal),
        "left out" if scaled is None else _kind(document, point["replicas"], scaled["kind"]),
        with_interval(figures["ttft_s.p95"], latency),
        with_interval(figures["e2e_s.p95"], latency),
        percent(sum(u["cpu_ratio"] for u in uses) / len(uses)) if uses else "-",
        latency(sum(known) / len(known)) if known else "-",
    ]


def _kind(document: Mapping[str, Any], replicas: int, kind: str) -> str:
    knee = " knee" if document["knee"] == replicas else ""
    return f"{'' if kind == 'base' else kind}{knee}".strip()


def show_scale(document: Mapping[str, Any], console: Console | None = None) -> None:
    """The table, and what it says."""
    console = console or wide_console()
    table = Table(box=None, pad_edge=False)
    table.add_column("replicas", justify="right", no_wrap=True)
    for name in scale_columns(document):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for point in document["points"]:
        table.add_row(str(point["replicas"]), *row_of(document, point))
    console.print(table)
    console.print()
    for point in document["points"]:
        for why in point["excluded"]:
            text = f"! {point['replicas']} replicas: {why}"
            console.print(Text(safe_text(text).plain, style="yellow"))
    if document["fleet_not_restored"] is not None:
        text = f"! the replicas were not put back: {document['fleet_not_restored']}"
        console.print(Text(safe_text(text).plain, style="bold red"))
    for line in scale_lines(document):
        console.print(Text(safe_text(line).plain, style="bold"))


def scale_lines(document: Mapping[str, Any]) -> list[str]:
    """Sentences: knee, points off the line, what is shared, and the fitted law."""
    if document["interrupted"]:
        return ["Interrupted: not every number of replicas was measured"]
    judged = [point["replicas"] for point in document["points"] if point["scaling"] is not None]
    if len(judged) < 2:
        return ["Nothing to compare: fewer than two numbers of replicas can be judged"]
    lines = []
    if document["knee"] is not None:
        text = f"The knee is at {document['knee']}: one more brings less than half of the first"
        lines.append(text)
    else:
        lines.append(f"No knee up to {judged[-1]} replicas")
    lines += [
        f"{name.capitalize()} at {', '.join(map(str, document[name]))}"
        for name in ("superlinear", "sublinear")
        if document[name]
    ]
    if (shared := document["shared"]) is not None:
        what = RESOURCES[shared["resource"]]
        at = shared["at_replicas"]
        lines.append(f"Shared at {at} replicas: {what} ({shared['evidence']})")
        lines += [f"  also {RESOURCES[o['resource']]} ({o['evidence']})" for o in shared["also"]]
    if (law := document["law"]) is not None:
        text = (
            f"Fitted law: contention {law['contention_ratio']:.1%}, coherency "
            f"{law['coherency_ratio']:.2%}, error {law['error_ratio']:.1%}"
        )
        if document["best_replicas"] is not None:
            text += f"; most at {document['best_replicas']:.3g} replicas"
        lines.append(text)
    return lines
