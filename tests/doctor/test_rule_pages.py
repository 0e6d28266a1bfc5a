"""Every rule's page: one example that fires, one that is clear, one that does not tell."""

from __future__ import annotations

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.remedy import risk_text
from mileage.doctor.rule import Rule
from mileage.doctor.rules.all_rules import RULES
from mileage.doctor.run import diagnose

EACH = pytest.mark.parametrize("rule", [pytest.param(each, id=each.id) for each in RULES])
HEADINGS = ("## Why it costs money", "## How it is told", "## What to do", "## Risk")
RISK_CHARACTERS = (70, 480)
"""One to three plain sentences."""


@EACH
def test_its_example_of_a_finding_is_found(rule: Rule) -> None:
    facts = decode_facts(rule.fires)
    assert rule.check(Evidence(facts)).outcome == "finding"
    assert diagnose(facts).findings[0].rule == rule.id, "another rule comes first"


@EACH
def test_its_clear_example_is_clear(rule: Rule) -> None:
    assert rule.check(Evidence(decode_facts(rule.clear))).outcome == "clear"


@EACH
def test_its_example_without_evidence_is_left_open(rule: Rule) -> None:
    opinion = rule.check(Evidence(decode_facts(rule.silent)))
    assert opinion.outcome == "not_enough_evidence"
    assert opinion.missing, "it names no fact that it would need"


@EACH
def test_no_facts_are_not_enough_evidence(rule: Rule) -> None:
    assert rule.check(Evidence(decode_facts({}))).outcome == "not_enough_evidence"


@EACH
def test_its_page_says_why_how_what_to_do_and_at_what_risk(rule: Rule) -> None:
    places = [rule.page.find(heading) for heading in HEADINGS]
    assert places == sorted(places), rule.page
    assert places[0] >= 0, rule.page
    assert rule.title.endswith(".")


@EACH
def test_its_risk_is_short_and_not_empty(rule: Rule) -> None:
    least, most = RISK_CHARACTERS
    assert least <= len(risk_text(rule)) <= most


def test_no_two_rules_have_a_sentence_of_their_risks_in_common() -> None:
    sentences = [each for rule in RULES for each in risk_text(rule).split(". ")]
    assert len(set(sentences)) == len(sentences)


def test_ids_and_names_are_used_once() -> None:
    assert len({rule.id for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)
