"""What `mileage plan check` shows to people: the differences, those that save most on top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from rich.table import Table
from rich.text import Text

from mileage.cli.simulate_format import percent, usd
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.planner.difference import Checked, Cost, Difference

__all__ = ["show_check"]

_BY: Final = {
    "rate": "at the highest rate within the targets, by simulation",
    "batch": "with full batches, by the step-time model; targets are not looked at",
}
_HOURS_PER_MONTH: Final = 730.0


def show_check(by: str, pick: str, found: Checked, sources: Mapping[str, str]) -> None:
    """Both costs, the differences, and what nobody knows."""
    console = wide_console()
    console.print(_line("Existing", found.existing.label, found.existing_cost))
    console.print(_line("Planned ", pick, found.planned_cost))
    console.print(f"costs are {_BY[by]}", style="dim")
    console.print()
    if found.differences:
        console.print(_table(found))
        for each in found.differences:
            if each.problem is not None:
                console.print(safe_text(f"{each.field}: {each.problem}"))
        console.print()
        console.print(Text(_verdict(found), style="bold"))
    else:
        console.print(Text("nothing that is known differs from the plan", style="bold green"))
    if found.unknown:
        told = f"not known, and taken to be as planned: {', '.join(found.unknown)}"
        console.print(Text(told, style="dim"))
    for card, source in sources.items():
        console.print(Text(f"price of {card}: {source}", style="dim"))


def _line(name: str, label: str, cost: Cost) -> Text:
    if cost.usd_per_mtok is not None:
        figure = f"{usd(cost.usd_per_mtok)} per million output tokens"
    elif cost.gpu_h_per_mtok is not None:
        figure = f"{cost.gpu_h_per_mtok:.4g} GPU-hours per million output tokens, no price known"
    else:
        figure = f"no cost: {cost.problem or 'not known'}"
    if cost.usd_per_hour is not None:
        figure += f", {usd(cost.usd_per_hour)} an hour"
    return Text.assemble((f"{name}  ", "bold"), safe_text(f"{label}: {figure}"))


def _table(found: Checked) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("setting")
    for name in ("existing", "planned", "saves", "an hour", "a month"):
        table.add_column(name, justify="right")
    for each in found.differences:
        table.add_row(
            each.field,
            safe_text(_value(each.existing)),
            safe_text(_value(each.planned)),
            *_money(each),
        )
    return table


def _money(each: Difference) -> tuple[str, str, str]:
    ratio, hour = each.saving_ratio, each.saving_usd_per_hour
    if ratio is None:
        return "-", "-", "-"
    if hour is None:
        return percent(ratio), "-", "-"
    return percent(ratio), _signed(hour), _signed(hour * _HOURS_PER_MONTH)


def _signed(amount: float) -> str:
    return f"-{usd(-amount)}" if amount < 0.0 else usd(amount)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    return msgspec.json.encode(value).decode()


def _verdict(found: Checked) -> str:
    ratio, hour = found.saving_ratio, found.saving_usd_per_hour
    if ratio is None:
        return "what all of them bring together cannot be said"
    if ratio <= 0.0:
        return f"the plan costs {percent(-ratio)} more for a token: its other picks may cost less"
    text = f"as planned, a token costs {percent(ratio)} less"
    if hour is None:
        return f"{text}, in GPU-hours"
    return f"{text}: {usd(hour)} an hour, {usd(hour * _HOURS_PER_MONTH)} a month, at this traffic"
