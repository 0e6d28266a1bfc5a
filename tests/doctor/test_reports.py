"""The trouble reports beside this file: their form, and what the doctor makes of them."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256

import pytest

from benchmarks.support.doctor_reports import OWN, Report, read_reports
from benchmarks.support.doctor_score import Answer, answer, answers
from mileage.doctor.rules.all_rules import RULES

REPORTS = read_reports(OWN)
CAUSES = {rule.cause for rule in RULES}
BY_ID = [pytest.param(report, id=report.id) for report in REPORTS]
SEEN = [pytest.param(report, id=report.id) for report in REPORTS if not report.held_out]


@pytest.fixture(scope="module")
def asked() -> list[Answer]:
    return answers(REPORTS)


def test_no_report_is_there_twice() -> None:
    counts = Counter(report.id for report in REPORTS)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("report", BY_ID)
def test_a_report_is_in_form(report: Report) -> None:
    expected = report.expected
    assert re.fullmatch(r"[ch]-[0-9a-f]{8}", report.id)
    assert report.healthy == report.id.startswith("h-")
    assert expected.max_severity == ("info" if report.healthy else None)
    assert report.held_out == (int(sha256(report.id.encode()).hexdigest(), 16) % 3 == 0)
    assert report.source == "constructed" or report.source.startswith("https://github.com/")
    assert report.decoded().values or report.decoded().comparisons
    right_or_true = expected.right | set(expected.also_ok)
    assert right_or_true.isdisjoint(report.must_not)
    assert right_or_true | set(report.must_not) <= CAUSES


def test_every_cause_has_two_reports() -> None:
    counts = Counter(report.expected.primary for report in REPORTS)
    assert {cause: counts[cause] for cause in CAUSES if 0 < counts[cause] < 2} == {}


@pytest.mark.parametrize("report", SEEN)
def test_nothing_harmful_is_said(report: Report) -> None:
    told = answer(report)
    assert told.harm == ()
    assert not told.false_alarm


@pytest.mark.parametrize(
    "held_out",
    [pytest.param(False, id="those rules were written with"), pytest.param(True, id="held out")],
)
def test_causes_are_named_and_the_healthy_left_alone(asked: list[Answer], held_out: bool) -> None:
    chosen = [each for each in asked if each.report.held_out is held_out]
    sick = [each for each in chosen if not each.report.healthy]
    assert sum(each.first == "right" for each in sick) >= 0.95 * len(sick)
    assert sum(each.first == "wrong" for each in sick) <= 0.01 * len(sick)
    assert sum(bool(each.harm) or each.false_alarm for each in chosen) <= 0.02 * len(chosen)
