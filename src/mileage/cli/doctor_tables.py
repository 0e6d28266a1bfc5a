"""What `mileage doctor` shows to people: the number first, then cause, evidence and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mileage.cli.doctor_text import (
    effects,
    evidence_rows,
    gain_basis,
    gains,
    headline,
    loss_basis,
    money,
    roots,
)
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.doctor.finding import Diagnosis, Finding

__all__ = ["show_diagnosis"]

_COLOURS: Final = {"info": "cyan", "warning": "yellow", "critical": "red"}
_VERDICT_COLOURS: Final = {"finding": "yellow", "clear": "green", "not_enough_evidence": "cyan"}


def show_diagnosis(
    diagnosis: Diagnosis,
    notes: Mapping[str, str],
    *,
    every_rule: bool = False,
    console: Console | None = None,
) -> None:
    """The diagnosis, for people."""
    console = console or wide_console()
    colour = _VERDICT_COLOURS[diagnosis.verdict]
    console.print(Text(headline(diagnosis), style=f"bold {colour}"))
    for number, found in enumerate(roots(diagnosis), start=1):
        console.print()
        _show_finding(console, found, f"{number}.")
        for other in diagnosis.findings:
            if other.consequence_of == found.rule:
                _show_consequence(console, other)
    if every_rule:
        console.print()
        console.print(_rules(diagnosis))
    elif diagnosis.verdict == "not_enough_evidence":
        console.print(Text("--every-rule tells which rule lacks what.", style="dim"))
    for source, why in notes.items():
        console.print(Text.assemble((f"{source}: ", "dim"), safe_text(why)))


def _show_finding(console: Console, found: Finding, number: str) -> None:
    colour = _COLOURS[found.severity]
    console.print(
        Text.assemble(
            (f"{number} {found.title}", "bold"),
            (f"  {found.severity}", colour),
            (f"  {found.rule} {found.cause}, {found.confidence:.0%}", "dim"),
        )
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    loss = money(found.loss_usd_per_month)
    table.add_row("a month", Text.assemble(loss, (_because(loss_basis(found)), "dim")))
    first, *others = gains(found)
    table.add_row("gain", Text.assemble(first, (_because(gain_basis(found)), "dim")))
    for other in others:
        table.add_row("", other)
    for place, (signal, value, limit, side) in enumerate(evidence_rows(found)):
        told = Text.assemble(safe_text(signal), " ", (str(safe_text(value)), "bold"))
        told.append(f"  {limit}", "dim")
        if side == "against":
            told.append("  speaks against it", "dim")
        table.add_row("evidence" if place == 0 else "", told)
    table.add_row("do", safe_text(found.remedy))
    for effect in effects(found):
        table.add_row("", Text.assemble((str(safe_text(effect)), "dim")))
    if found.risk:
        table.add_row("risk", Text(found.risk, "dim"))
    console.print(Padding(table, (0, 0, 0, 3)))
    # Commands stay on one line, so that they can be copied.
    for name, command in (
        ("prove it", found.proof_command),
        ("more    ", f"mileage explain {found.rule}"),
    ):
        line = Text.assemble((f"   {name}  ", "dim"), safe_text(command))
        console.print(line, soft_wrap=True)


def _because(basis: str) -> str:
    return f"  ({safe_text(basis)})" if basis else ""


def _show_consequence(console: Console, found: Finding) -> None:
    console.print(
        Text.assemble(
            ("   brings about: ", "dim"),
            found.title,
            (f"  {found.rule} {found.cause}, {found.confidence:.0%}", "dim"),
        )
    )


def _rules(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("rule", "cause", "outcome", "lacks"):
        table.add_column(name)
    for each in diagnosis.rules:
        lacks = ", ".join(each.missing[:6]) if each.outcome == "not_enough_evidence" else ""
        table.add_row(each.rule, each.cause, each.outcome.replace("_", " "), lacks)
    return table
