"""Sources that contradict each other: which said what, and which one counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from mileage.cli.doctor_text import shown_value
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.doctor.collect.merge_facts import FactConflict

__all__ = ["conflict_rows", "show_conflicts"]


def conflict_rows(conflicts: Iterable[FactConflict]) -> list[dict[str, Any]]:
    """Each once, for the JSON document."""
    rows: list[dict[str, Any]] = []
    for conflict in conflicts:
        row = {
            "fact": conflict.fact,
            "kept": conflict.kept,
            "kept_source": conflict.kept_source,
            "other": conflict.other,
            "other_source": conflict.other_source,
        }
        if row not in rows:
            rows.append(row)
    return rows


def show_conflicts(conflicts: Iterable[FactConflict], *, console: Console | None = None) -> None:
    """A line for each, for people."""
    console = console or wide_console()
    for row in conflict_rows(conflicts):
        kept, other = shown_value(row["kept"]), shown_value(row["other"])
        line = (
            f"{row['fact']}: {kept} by {row['kept_source']} counts, "
            f"{other} by {row['other_source']} does not"
        )
        console.print(Text.assemble(("sources differ  ", "dim"), safe_text(line)))
