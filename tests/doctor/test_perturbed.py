"""Reports told another way: what is the same deployment gets the same answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks.support.doctor_reports import OWN, Report, read_reports
from benchmarks.support.doctor_score import Answer, answer

BLUR = 1e-6
"""Half the width of the bounds that stand for a number, of the number; counts stay exact."""

REPORTS = read_reports(OWN)
BY_ID = [pytest.param(report, id=report.id) for report in REPORTS]
_plain: dict[str, Answer] = {}


def plain(report: Report) -> Answer:
    """The answer to the report as it stands; asked once, for each test wants it."""
    if report.id not in _plain:
        _plain[report.id] = answer(report)
    return _plain[report.id]


def in_arms(facts: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The document with `change` made to it and to each arm."""
    changed = change(dict(facts))
    if "comparisons" in facts:
        changed["comparisons"] = [
            {**comparison, "arms": [change(dict(arm)) for arm in comparison["arms"]]}
            for comparison in facts["comparisons"]
        ]
    return changed


def signals_as(number: Callable[[float], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Changes every number among the signals that stands alone."""

    def change(document: dict[str, Any]) -> dict[str, Any]:
        if "signals" in document:
            document["signals"] = {
                name: value
                if isinstance(value, bool) or not isinstance(value, int | float)
                else number(value)
                for name, value in document["signals"].items()
            }
        return document

    return change


def bounds(value: float) -> dict[str, float]:
    width = 0.0 if value == int(value) else abs(value) * BLUR
    return {"min": value - width, "max": value + width}


def standing_still(value: float) -> dict[str, Any]:
    return {"series": [{"t_s": at_s, "value": value} for at_s in (0, 30, 60)]}


def reversed_lists(document: dict[str, Any]) -> dict[str, Any]:
    if "signals" in document:
        document["signals"] = {
            name: value[::-1] if isinstance(value, list) else value
            for name, value in document["signals"].items()
        }
    return document


def with_more(document: dict[str, Any]) -> dict[str, Any]:
    """Facts that decide nothing."""
    if "arm" not in document:
        document["topology"] = {"orchestrator": "none", **document.get("topology", {})}
        document["signals"] = {"xid_errors_count": 0, **document.get("signals", {})}
        document["logs"] = [*document.get("logs", []), "INFO: Application startup complete."]
    return document


def same(told: Answer, plain: Answer) -> bool:
    return (told.first, told.causes[:1]) == (plain.first, plain.causes[:1])


@pytest.mark.parametrize("report", BY_ID)
def test_a_number_may_be_bounds_around_it(report: Report) -> None:
    told = answer(report, in_arms(report.facts, signals_as(bounds)))
    assert same(told, plain(report)), (told.causes, plain(report).causes)


@pytest.mark.parametrize("report", BY_ID)
def test_a_number_may_be_a_series_that_stands_still(report: Report) -> None:
    told = answer(report, in_arms(report.facts, signals_as(standing_still)))
    assert same(told, plain(report)), (told.causes, plain(report).causes)


@pytest.mark.parametrize("report", BY_ID)
def test_the_order_of_replicas_and_cards_says_nothing(report: Report) -> None:
    told = answer(report, in_arms(report.facts, reversed_lists))
    assert set(told.causes) == set(plain(report).causes)


@pytest.mark.parametrize("report", BY_ID)
def test_facts_that_decide_nothing_change_nothing(report: Report) -> None:
    told = answer(report, in_arms(report.facts, with_more))
    assert same(told, plain(report)), (told.causes, plain(report).causes)


@pytest.mark.parametrize("report", BY_ID)
def test_the_name_of_another_engine_does_no_harm(report: Report) -> None:
    engine = {**report.facts.get("engine", {}), "name": "another-engine"}
    told = answer(report, {**report.facts, "engine": engine})
    before = plain(report)
    assert set(told.harm) <= set(before.harm)
    assert not told.false_alarm or before.false_alarm
