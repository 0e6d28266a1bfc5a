"""Which finding comes first: causes before their consequences, the likelier before others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule

__all__ = ["Ranked", "confidence_of", "ranked"]

SEVERITY_ODDS = {"info": -4.0, "warning": 0.0, "critical": 1.0}
"""What breaks service comes before what is slow, and that before what is only worth knowing."""

CONFIDENCE_MAX = 0.99
"""Facts of a report are never proof: the one who wrote them may have erred."""


class Ranked(msgspec.Struct, frozen=True):
    """A finding's rule and opinion, and the rule that brings it about where there is one."""

    rule: Rule
    opinion: Opinion
    consequence_of: str | None


def confidence_of(opinion: Opinion) -> float:
    """The probability of the cause: the logistic function of its log odds."""
    return round(min(CONFIDENCE_MAX, 1.0 / (1.0 + math.exp(-opinion.log_odds))), 3)


def ranked(found: Sequence[tuple[Rule, Opinion]]) -> tuple[Ranked, ...]:
    """Findings in order: causes by score, then consequences by score.

    Score: log odds, moved by severity. Where two rules name one cause the better one stays. Of
    two causes that explain each other the higher score is the cause.
    """
    best: dict[str, tuple[Rule, Opinion]] = {}
    for rule, opinion in found:
        known = best.get(rule.cause)
        if known is None or _score(opinion) > _score(known[1]):
            best[rule.cause] = (rule, opinion)
    ordered = sorted(best.values(), key=lambda pair: (-_score(pair[1]), pair[0].id))
    parents: dict[str, str] = {}
    for rule, opinion in ordered:
        if opinion.severity == "info":
            continue
        for other, _ in ordered:
            mutual = rule.cause in other.explains
            first = rule.cause not in parents and other.cause not in parents
            if other.cause in rule.explains and first and (not mutual or rule is not other):
                parents[other.cause] = rule.id
    rows = [Ranked(rule, opinion, parents.get(rule.cause)) for rule, opinion in ordered]
    return tuple(sorted(rows, key=lambda row: row.consequence_of is not None))


def _score(opinion: Opinion) -> float:
    return opinion.log_odds + SEVERITY_ODDS[opinion.severity]
