"""What `mileage plan roi` shows to people: both ways side by side, a verdict, and a tornado."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.plan_roi_file import RoiFile
from mileage.cli.simulate_format import count, percent
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.planner.roi import Roi, Sensitivity, Serving

__all__ = ["show_roi"]

_BAR: Final = 36
"""Characters of the longest bar."""
_STYLES: Final = {"-": "yellow", "+": "cyan"}


def show_roi(told: RoiFile, found: Roi) -> None:
    """All of it."""
    console = wide_console()
    console.print(_sides(told, found))
    console.print()
    good = found.break_even_months is not None
    for line in _verdict(told, found):
        console.print(Text(line, style="bold green" if good else "bold red"))
    console.print()
    _show_tornado(console, found)


def _sides(told: RoiFile, found: Roi) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in (told.baseline.name, told.candidate.name):
        table.add_column(safe_text(name), justify="right")
    both = told.baseline, told.candidate
    table.add_row("serving, a request", *(_usd(each.usd_per_request) for each in both))
    if any(each.review_ratio for each in both):
        table.add_row("looked at by people", *(percent(each.review_ratio) for each in both))
    if any(each.accuracy_ratio is not None for each in both):
        table.add_row("right answers", *(_accuracy(each) for each in both))
    table.add_row(
        "all of a request",
        _usd(found.baseline_usd_per_request),
        _usd(found.candidate_usd_per_request),
    )
    if any(each.usd_per_month for each in both):
        table.add_row("whatever is asked, a month", *(_usd(each.usd_per_month) for each in both))
    table.add_row(
        "first month",
        _usd(found.baseline_usd_per_month),
        _usd(found.candidate_usd_per_month),
    )
    return table


def _accuracy(serving: Serving) -> str:
    return "-" if serving.accuracy_ratio is None else percent(serving.accuracy_ratio)


def _verdict(told: RoiFile, found: Roi) -> list[str]:
    business = told.business
    growth = business.growth_ratio_per_month
    volume = f"{count(business.requests_per_month)} requests a month"
    if growth:
        volume += f", {growth:+.1%} each month"
    year = f"first year {_usd(found.saving_usd_first_year)}"
    if found.return_ratio_first_year is not None:
        year += f", {found.return_ratio_first_year:.2f} times what the change costs"
    saved = found.saving_usd_per_month
    first = f"saves {_usd(saved)}" if saved >= 0.0 else f"costs {_usd(-saved)} more"
    lines = [f"{volume}: {first} in the first month; {year}"]
    months, day = found.break_even_months, found.break_even_date
    if months is None:
        lines.append(f"never pays back its {_usd(business.one_time_usd)}, or not in 50 years")
    elif months == 0.0:
        lines.append("pays from the first day: the change costs nothing")
    else:
        on = f", on {day.isoformat()}" if day is not None else ""
        lines.append(f"pays back {_usd(business.one_time_usd)} after {months:.1f} months{on}")
    return lines


def _show_tornado(console: Console, found: Roi) -> None:
    """The inputs by how far each moves the saving: `<` where less of it leads, `>` where more."""
    table = Table(box=None, pad_edge=False)
    table.add_column("20 % less, 20 % more of")
    for name in ("from", "to", "saving", "saving"):
        table.add_column(name, justify="right")
    table.add_column("(first month)")
    for name in ("pays back", "pays back"):
        table.add_column(name, justify="right")
    ends = [end for each in found.sensitivity for end in each.saving_usd_per_month]
    ends.append(found.saving_usd_per_month)
    low, high = min(ends), max(ends)
    for each in found.sensitivity:
        if not each.swing_usd and len({*each.break_even_months}) == 1:
            continue  # as the same change of both, which cancels out
        table.add_row(
            each.input,
            _value(each, each.low),
            _value(each, each.high),
            *(_usd(end) for end in each.saving_usd_per_month),
            _bar(each, found.saving_usd_per_month, low, high),
            *(_months(end) for end in each.break_even_months),
        )
    console.print(table)
    console.print("| is as it stands, - what less of it makes, + what more makes", style="dim")


def _bar(each: Sensitivity, at: float, low: float, high: float) -> Text:
    """From the saving with less of it to that with more, and the saving as it is."""
    width = high - low

    def place(value: float) -> int:
        return round((value - low) / width * (_BAR - 1)) if width > 0.0 else 0

    middle = place(at)
    cells = {
        cell: mark
        for mark, end in zip("-+", each.saving_usd_per_month, strict=True)
        for cell in range(min(place(end), middle), max(place(end), middle) + 1)
    }
    cells[middle] = "|"
    text = Text()
    for cell in range(_BAR):
        mark = cells.get(cell, " ")
        text.append(mark, _STYLES.get(mark, ""))
    return text


def _value(each: Sensitivity, value: float) -> str:
    if each.input.endswith("_ratio"):
        return percent(value)
    return _usd(value) if "usd" in each.input else count(value)


def _months(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} months"


def _usd(value: float) -> str:
    """Cents matter of a request, and do not of a month."""
    sign, size = "-" if value < 0.0 else "", abs(value)
    if size >= 1000.0:
        return f"{sign}${size:,.0f}"
    return f"{sign}${size:.2f}" if size >= 1.0 else f"{sign}${size:.4g}"
