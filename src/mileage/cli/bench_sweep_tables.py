"""What `mileage bench sweep` shows to people: a row per point, the front, and the picks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_format import latency, percent, rate, usd
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = ["PICK_NAMES", "columns_of", "mark_of", "pick_lines", "show_sweep", "with_interval"]

PICK_NAMES: Final = {
    "low_latency": "low latency",
    "throughput": "throughput",
    "balanced": "balanced",
}
_COLUMNS: Final = (
    ("ttft_s.{q}", "TTFT {q}", latency),
    ("itl_s.{q}", "ITL {q}", latency),
    ("e2e_s.{q}", "E2E {q}", latency),
    ("output_tokens_per_s", "output tokens", rate),
    ("requests_per_s", "answers", rate),
    ("goodput_rps", "goodput", rate),
    ("slo_attainment_ratio", "met", percent),
    ("utilisation_ratio", "utilisation", percent),
    ("usd_per_mtok", "USD/Mtok", usd),
)


def show_sweep(document: Mapping[str, Any], console: Console | None = None) -> None:
    """The table, and what it says."""
    console = console or wide_console()
    columns = columns_of(document)
    table = Table(box=None, pad_edge=False)
    for name in ("", "front", *(title for _, title, _ in columns)):
        table.add_column(name, justify="left" if name in ("", "front") else "right", no_wrap=True)
    for point in document["points"]:
        cells = [
            with_interval(point["figures"][key], text) if not point["excluded"] else "-"
            for key, _, text in columns
        ]
        style = "bold" if point["on_front"] else "" if not point["excluded"] else "dim"
        table.add_row(safe_text(point["label"]), mark_of(document, point), *cells, style=style)
    console.print(table)
    console.print()
    console.print(Text("* on the front; (*) within its noise: another run may have it there"))
    for point in document["points"]:
        for why in point["excluded"]:
            line = f"! {point['label']}: {why}"
            console.print(Text(safe_text(line).plain, style="yellow"))
    if document["settings_not_restored"] is not None:
        text = f"! the settings were not put back: {document['settings_not_restored']}"
        console.print(Text(safe_text(text).plain, style="bold red"))
    for line in pick_lines(document):
        console.print(Text(safe_text(line).plain, style="bold"))


def columns_of(document: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Figures that some point has: where it is, its name, and how it is written."""
    q = document["quantile"]
    found = [(key.format(q=q), name.format(q=q), text) for key, name, text in _COLUMNS]
    points = [point["figures"] for point in document["points"]]
    return [each for each in found if any(p.get(each[0]) is not None for p in points)]


def with_interval(figure: Mapping[str, Any] | None, text: Any) -> str:
    """A mean with half of its interval; - where there is none."""
    if figure is None:
        return "-"
    if figure["low"] is None:
        return str(text(figure["mean"]))
    half = (figure["high"] - figure["low"]) / 2
    share = half / abs(figure["mean"]) if figure["mean"] else 0.0
    return f"{text(figure['mean'])} +-{share:.0%}"


def mark_of(document: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    """Whether a point is on the front, and what it is picked for."""
    index = next(i for i, each in enumerate(document["points"]) if each is point)
    names = [
        PICK_NAMES[name] for name, chosen in document["pick_indices"].items() if chosen == index
    ]
    mark = "*" if point["on_front"] else "(*)" if point["within_noise_of_front"] else ""
    return " ".join([mark, *([", ".join(names)] if names else [])])


def pick_lines(document: Mapping[str, Any]) -> Sequence[str]:
    """A line for each pick, or the one that says that there is none."""
    if document["interrupted"]:
        return ["Interrupted: points that were not measured are on no front"]
    chosen = document["pick_indices"]
    if chosen["balanced"] is None:
        return ["No front: no point can be compared"]
    lines = []
    columns = [each for each in columns_of(document) if _is_objective(document, each[0])]
    for name, index in chosen.items():
        point = document["points"][index]
        figures = ", ".join(
            f"{title} {text(point['figures'][key]['mean'])}" for key, title, text in columns
        )
        more = _more(document, index) if name == "throughput" else ""
        lines.append(f"{PICK_NAMES[name].capitalize()}: {point['label']} ({figures}){more}")
    return lines


def _more(document: Mapping[str, Any], chosen: int) -> str:
    """Which point had more than the one that is picked for it, within the noise."""
    key = next(each["figure"] for each in document["objectives"] if each["sense"] == "max")
    points = document["points"]
    front = [index for index, point in enumerate(points) if point["on_front"]]
    most = max(front, key=lambda index: points[index]["figures"][key]["mean"])
    rates = [points[index]["figures"][key]["mean"] for index in (chosen, most)]
    if rates[0] == rates[1]:
        return ""
    return f"; what {points[most]['label']} had more, {rate(rates[1])}, is within the noise"


def _is_objective(document: Mapping[str, Any], key: str) -> bool:
    return any(each["figure"] == key for each in document["objectives"])
