"""What `mileage plan compare` shows to people: a column for each deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from mileage.cli.plan_compare_cards import FilledCard
from mileage.cli.simulate_format import count, percent, rate, usd
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.costmodel.memory import MemoryUse
from mileage.measure.scaling import Scaling
from mileage.planner.comparison import ComparedDeployment, DeploymentCard

__all__ = ["show_comparison"]

_GB = 1e9
_FRONT = "*"


def show_comparison(filled: Sequence[FilledCard], compared: Sequence[ComparedDeployment]) -> None:
    """The table, who is on the front, and whose word figures are."""
    console = wide_console()
    console.print(_table(filled, compared))
    console.print()
    for each in filled:
        if each.scale_out is not None:
            console.print(_curve(each.card, each.scale_out))
            console.print()
    front = [each.card.name for each in compared if each.on_front]
    if front:
        text = f"{_FRONT} no other costs as little per task and scores as high: "
        console.print(safe_text(text + ", ".join(front)), style="bold")
    elif len({each.card.quality.measure for each in compared if each.card.quality}) > 1:
        console.print("scores of different measures: there is no front", style="bold")
    for each in filled:
        for key, source in each.sources.items():
            line = safe_text(f"{each.card.name}, {key}: {source}")
            line.stylize("dim")
            console.print(line)


def _table(filled: Sequence[FilledCard], compared: Sequence[ComparedDeployment]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for each in compared:
        mark = f" {_FRONT}" if each.on_front else ""
        table.add_column(safe_text(each.card.name + mark), justify="right")

    def row(name: str, cells: Sequence[str | Text]) -> None:
        if any(str(cell) != "-" for cell in cells):
            table.add_row(name, *cells)

    cards = [each.card for each in compared]
    parts = [each.memory for each in filled]
    row("model", [safe_text(card.model) for card in cards])
    row("as", [safe_text(card.form) for card in cards])
    row("cards", [count(card.cards) for card in cards])
    row("memory of each", [_cell(card.memory_bytes, _gigabytes) for card in cards])
    row("  weights", [_part(part, "weights") for part in parts])
    row("  KV cache", [_part(part, "kv") for part in parts])
    row("  activations, context", [_part(part, "activations", "context") for part in parts])
    row("score", [_score(each) for each in compared])
    row("requests a second", [_cell(card.requests_per_s, rate) for card in cards])
    row("requests per card and day", [_cell(c.requests_per_card_day, count) for c in compared])
    row("an hour", [_cell(card.usd_per_hour, usd) for card in cards])
    row("1,000 requests", [_thousand(each.usd_per_request) for each in compared])
    row("1,000 tasks", [_thousand(each.usd_per_task) for each in compared])
    row("1,000 tasks solved", [_thousand(each.usd_per_solved_task) for each in compared])
    return table


def _curve(card: DeploymentCard, curve: Scaling) -> Table:
    """Of requests per second by replicas: what each brings, and the knee."""
    table = Table(box=None, pad_edge=False)
    table.add_column(safe_text(f"replicas of {card.name}"), justify="right")
    for name in ("requests a second", "per replica", "added brings"):
        table.add_column(name, justify="right")
    table.add_column("")
    for point in curve.points:
        knee = "knee" if curve.knee == point.replicas else ""
        table.add_row(
            count(point.replicas),
            rate(point.throughput),
            percent(point.efficiency_ratio),
            _cell(point.marginal_ratio, percent),
            f"{'' if point.kind == 'base' else point.kind} {knee}".strip(),
        )
    return table


def _score(each: ComparedDeployment) -> str:
    quality = each.card.quality
    return "-" if quality is None else f"{quality.score:.3f} {quality.measure}"


def _cell(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _part(memory: MemoryUse | None, *names: str) -> str:
    return "-" if memory is None else _gigabytes(sum(getattr(memory, name) for name in names))


def _thousand(value: float | None) -> str:
    return "-" if value is None else usd(1000.0 * value)


def _gigabytes(value: float) -> str:
    return f"{value / _GB:.1f} GB"
