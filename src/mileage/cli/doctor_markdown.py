"""A diagnosis as Markdown, to paste into an issue or a chat."""

from __future__ import annotations

from mileage.cli.doctor_text import evidence_rows, headline, money
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
    loss = found.loss_usd_per_month
    basis = f" ({loss.basis})" if loss is not None else ""
    lines = [
        f"## {found.title}",
        "",
        f"- Rule {_code(found.rule)}, cause {_code(found.cause)}, {found.severity},"
        f" {found.confidence:.0%} sure",
        f"- Cost per month: {money(loss)}{basis}",
    ]
    if found.consequence_of is not None:
        lines.append(f"- Brought about by {_code(found.consequence_of)}")
    lines += ["", "| evidence | value | limit | |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {_cell(signal)} | {_cell(value)} | {_cell(limit)} | {side} |"
        for signal, value, limit, side in evidence_rows(found)
    ]
    lines += ["", f"**What to do.** {found.remedy}", "", f"    {found.proof_command}", ""]
    return lines


def _code(value: str) -> str:
    return f"`{value.replace('`', chr(39))}`"


def _cell(value: str) -> str:
    return _code(value.replace("|", "\\|").replace("\n", " ")) if value else ""
