"""The diagnosis: every rule is asked, findings are ranked, priced and given a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from mileage.doctor.derive import derived
from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import Facts
from mileage.doctor.finding import Diagnosis, EvidenceLine, Finding, RuleOutcome, Verdict
from mileage.doctor.gain.expected import FINDINGS_SIMULATED, expected_gains
from mileage.doctor.gain.simulator import Simulator
from mileage.doctor.money import Bill, GpuPriceStated, loss_of, month_of, no_loss_because
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.proof import proof_command
from mileage.doctor.ranking import Ranked, confidence_of, ranked
from mileage.doctor.remedy import remedy_text, risk_text
from mileage.doctor.rule import Rule
from mileage.doctor.rules.all_rules import RULES
from mileage.doctor.takes_effect import takes_effect
from mileage.doctor.vital_signs import ails, vital_groups

__all__ = ["VITAL_GROUPS_MIN", "diagnose"]

VITAL_GROUPS_MIN = 3
"""Groups of vital signs (queue, work, memory, latency, device) that "clear" rests on at least."""

MISSING_SHOWN = 8


def diagnose(
    facts: Facts,
    *,
    price: GpuPriceStated | None = None,
    url: str | None = None,
    rules: Sequence[Rule] = RULES,
    simulate: bool = False,
) -> Diagnosis:
    """Ask every rule and put the findings in order, the primary cause first.

    Args:
        facts: what is known of the deployment.
        price: of a GPU; None: the facts' own, else the range of public offers.
        url: address for the command that proves a remedy; None: a placeholder.
        rules: those to ask.
        simulate: what the remedies of the first findings are worth; takes up to a second.

    The verdict is `finding` where there is one, whatever its severity; `clear` where there is
    none, enough vital signs are known and none of them is plainly bad; else
    `not_enough_evidence`.
    """
    facts = msgspec.structs.replace(facts, values=derived(dict(facts.values)))
    evidence = Evidence(facts)
    opinions = [(rule, rule.check(evidence)) for rule in rules]
    found = [(rule, opinion) for rule, opinion in opinions if opinion.outcome == "finding"]
    bill = month_of(evidence, price)
    simulator = Simulator() if simulate else None
    findings = tuple(
        _finding(row, evidence, bill, url, simulator if place < FINDINGS_SIMULATED else None)
        for place, row in enumerate(ranked(found))
    )
    return Diagnosis(
        verdict=_verdict(findings, evidence),
        findings=findings,
        rules=tuple(
            RuleOutcome(rule.id, rule.cause, opinion.outcome, opinion.missing)
            for rule, opinion in opinions
        ),
        missing=_missing(opinions),
    )


def _finding(
    row: Ranked, evidence: Evidence, bill: Bill, url: str | None, simulator: Simulator | None
) -> Finding:
    opinion, cause = row.opinion, row.rule.cause
    gains, why = expected_gains(opinion, evidence, simulator)
    loss = loss_of(opinion, bill)
    return Finding(
        rule=row.rule.id,
        cause=cause,
        title=row.rule.title,
        severity=opinion.severity,
        confidence=confidence_of(opinion),
        evidence=_evidence(opinion),
        loss_usd_per_month=loss,
        remedy=remedy_text(row.rule, opinion, evidence),
        changes=tuple(
            Change(each.setting, each.value, takes_effect(each, cause, evidence))
            for each in opinion.changes
        ),
        proof_command=proof_command(opinion, evidence, url, cause),
        consequence_of=row.consequence_of,
        risk=risk_text(row.rule),
        expected_gain=gains or None,
        gain_unknown_because=why,
        loss_unknown_because=None if loss is not None else no_loss_because(opinion, bill),
    )


def _evidence(opinion: Opinion) -> tuple[EvidenceLine, ...]:
    """What it rests on, each fact once where all that it adds is said with it; what weighs most
    first."""
    lines: dict[tuple[str, str], EvidenceLine] = {}
    for sign in opinion.signs:
        check = sign.check
        key = (check.signal, repr(check.value))
        known = lines.get(key)
        if known is None:
            lines[key] = EvidenceLine(check.signal, check.value, check.limit, sign.weight)
        elif sign.weight:
            # The limit of the heaviest is shown; the weights of all of them count.
            heavier = abs(sign.weight) > abs(known.weight)
            limit = check.limit if heavier else known.limit
            weight = known.weight + sign.weight
            lines[key] = EvidenceLine(check.signal, check.value, limit, weight)
    return tuple(sorted(lines.values(), key=lambda line: -abs(line.weight)))


def _verdict(findings: tuple[Finding, ...], evidence: Evidence) -> Verdict:
    if findings:
        return "finding"
    enough = len(vital_groups(evidence)) >= VITAL_GROUPS_MIN
    return "clear" if enough and not ails(evidence) else "not_enough_evidence"


def _missing(opinions: Sequence[tuple[Rule, Opinion]]) -> tuple[str, ...]:
    asked = Counter(
        key
        for _, opinion in opinions
        if opinion.outcome == "not_enough_evidence"
        for key in opinion.missing
        if key not in ("logs", "comparisons")
    )
    return tuple(key for key, _ in asked.most_common(MISSING_SHOWN))
