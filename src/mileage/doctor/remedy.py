"""The remedy of a finding in the engine's own words, and its risk."""

from __future__ import annotations

from mileage.doctor.engine_flags import change_line
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule

__all__ = ["remedy_text", "risk_text"]

WHAT_TO_DO = "## What to do"
RISK = "## Risk"
EMBEDDED = "embedded"
"""The engine that a gateway runs itself: its settings are the gateway's."""


def remedy_text(rule: Rule, opinion: Opinion, evidence: Evidence) -> str:
    """What to do: the rule's advice for this deployment, then the exact lines to change.

    Where the rule has no advice for it the page's section "What to do" speaks.
    """
    advice = opinion.advice or section(rule, WHAT_TO_DO)
    is_embedded = evidence.text("engine.variant") == EMBEDDED
    engine = "mileage" if is_embedded else evidence.text("engine.name")
    lines = [change_line(change, engine) for change in opinion.changes]
    return f"{advice} Change: {'; '.join(lines)}." if lines else advice


def risk_text(rule: Rule) -> str:
    """What the remedy can break or cost, what to watch, and how to go back."""
    return section(rule, RISK)


def section(rule: Rule, heading: str) -> str:
    """The text of one section of a rule's page, on one line; "" where there is none."""
    _, found, rest = rule.page.partition(heading)
    return " ".join(rest.partition("\n## ")[0].split()) if found else ""
