"""A diagnosis as Markdown, to paste into an issue or a chat."""

from __future__ import annotations

from mileage.cli.doctor_text import (
    effects,
    evidence_rows,
    gain_basis,
    gains,
    headline,
    loss_basis,
    money,
)
from mileage.doctor.finding import Diagnosis, Finding

__all__ = ["diagnosis_markdown"]


def diagnosis_markdown(diagnosis: Diagnosis) -> str:
    """The text; values from engines stand in code spans, so that they cannot become markup."""
    parts = [f"# {headline(diagnosis)}", ""]
    for found in diagnosis.findings:
        parts += _finding(found)
    if diagnosis.missing:
        parts += ["Not known, and of use: " + ", ".join(map(_code, diagnosis.missing)) + ".", ""]
    return "\n".join(parts)


def _finding(found: Finding) -> list[str]:
    lines = [
        f"## {found.title}",
        "",
        f"- Rule {_code(found.rule)}, cause {_code(found.cause)}, {found.severity},"
        f" {found.confidence:.0%} sure",
        f"- Cost per month: {money(found.loss_usd_per_month)}{_because(loss_basis(found))}",
        f"- Expected gain: {', '.join(gains(found))}{_because(gain_basis(found))}",
    ]
    if found.consequence_of is not None:
        lines.append(f"- Brought about by {_code(found.consequence_of)}")
    lines += ["", "| evidence | value | limit | |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {_cell(signal)} | {_cell(value)} | {_cell(limit)} | {side} |"
        for signal, value, limit, side in evidence_rows(found)
    ]
    lines += ["", f"**What to do.** {found.remedy}", ""]
    lines += [line for effect in effects(found) for line in (f"{effect}.", "")]
    if found.risk:
        lines += [f"**Risk.** {found.risk}", ""]
    return [*lines, f"    {found.proof_command}", ""]


def _because(basis: str) -> str:
    return f" ({basis})" if basis else ""


def _code(value: str) -> str:
    return f"`{value.replace('`', chr(39))}`"


def _cell(value: str) -> str:
    return _code(value.replace("|", "\\|").replace("\n", " ")) if value else ""
