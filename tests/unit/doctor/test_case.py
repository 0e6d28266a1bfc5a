"""The case for a cause: deciders, conditions, signs and refutations, weighed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.case import PRIOR_LOG_ODDS, Case
from mileage.doctor.check import Check, both
from mileage.doctor.opinion import Opinion
from mileage.doctor.ranking import confidence_of

TRUTH = st.sampled_from((True, False, None))


def check(truth: bool | None, name: str = "itl_p99_s") -> Check:
    return Check(name, 1, "> 0", truth)


YES, NO, UNKNOWN = check(True), check(False), check(None)


def weighed(*, must: tuple[Check, ...] = (), shows: tuple[Check, ...] = (), weight: float = 3.0,
            refutes: tuple[Check, ...] = (), against: float = 0.0) -> Opinion:  # fmt: skip
    case = Case()
    for each in must:
        case.must(each)
    for each in shows:
        case.shows(each, weight)
    for each in refutes:
        case.refutes(each)
    case.sign(check(True, "sign"), yes=-against)
    return case.opinion()


@pytest.mark.parametrize(
    ("opinion", "outcome"),
    [
        pytest.param(weighed(shows=(YES,)), "finding", id="a decider is met"),
        pytest.param(weighed(shows=(NO,)), "clear", id="none is met"),
        pytest.param(weighed(shows=(UNKNOWN,)), "not_enough_evidence", id="none is known"),
        pytest.param(weighed(shows=(NO, YES)), "finding", id="one of several is met"),
        pytest.param(weighed(shows=(NO, UNKNOWN)), "not_enough_evidence", id="one may be met"),
        pytest.param(weighed(shows=(YES,), must=(YES,)), "finding", id="its condition is met"),
        pytest.param(weighed(shows=(YES,), must=(NO,)), "clear", id="its condition is not met"),
        pytest.param(
            weighed(shows=(YES,), must=(UNKNOWN,)),
            "not_enough_evidence",
            id="its condition is not known",
        ),
        pytest.param(weighed(shows=(YES,), refutes=(YES,)), "clear", id="it is refuted"),
        pytest.param(weighed(shows=(YES,), refutes=(NO,)), "finding", id="it is not refuted"),
        pytest.param(weighed(shows=(YES,), refutes=(UNKNOWN,)), "finding", id="not known to be"),
        pytest.param(
            weighed(shows=(YES,), against=2.0), "not_enough_evidence", id="much speaks against it"
        ),
        pytest.param(weighed(shows=(YES,), weight=1.9), "not_enough_evidence", id="a weak decider"),
        pytest.param(weighed(shows=(YES, YES), weight=1.9), "finding", id="two weak deciders"),
        pytest.param(weighed(must=(NO,), shows=(UNKNOWN,)), "clear", id="cleared before it shows"),
        pytest.param(weighed(), "not_enough_evidence", id="nothing was asked"),
    ],
)
def test_outcome(opinion: Opinion, outcome: str) -> None:
    assert opinion.outcome == outcome


@given(st.lists(st.tuples(TRUTH, st.floats(0, 5)), max_size=6))
def test_the_odds_are_the_prior_and_what_known_answers_add(
    shown: list[tuple[bool | None, float]],
) -> None:
    case = Case()
    for truth, weight in shown:
        case.shows(check(truth), weight)
    expected = PRIOR_LOG_ODDS + sum(weight for truth, weight in shown if truth)
    assert case.opinion().log_odds == pytest.approx(expected)


@given(st.lists(TRUTH, min_size=1, max_size=4), st.lists(TRUTH, max_size=3), TRUTH)
def test_a_fact_that_becomes_known_turns_no_verdict_round(
    shown: list[bool | None], needed: list[bool | None], now: bool | None
) -> None:
    """What a missing decider or condition would say may complete a verdict, not reverse it."""

    def outcome(fill: bool | None) -> str:
        case = Case()
        for truth in shown:
            case.shows(check(fill if truth is None else truth), 3.0)
        for truth in needed:
            case.must(check(fill if truth is None else truth))
        return case.opinion().outcome

    before, after = outcome(None), outcome(now)
    if before == "clear":
        assert after == "clear"
    if before == "finding":
        assert after in ("finding",)


def test_a_sign_decides_nothing_alone() -> None:
    case = Case()
    case.shows(UNKNOWN, 3.0)
    case.sign(YES, yes=9.0)
    assert case.opinion().outcome == "not_enough_evidence"


def test_a_sign_adds_by_its_answer_and_nothing_where_it_is_not_known() -> None:
    odds = []
    for answer in (YES, NO, UNKNOWN):
        case = Case()
        case.sign(answer, yes=1.0, no=-0.5)
        odds.append(case.opinion().log_odds - PRIOR_LOG_ODDS)
    assert odds == [1.0, -0.5, 0.0]


def test_a_joined_check_is_weighed_once_and_shown_whole() -> None:
    case = Case()
    case.shows(both(check(True, "a"), check(True, "b")), 3.0)
    opinion = case.opinion()
    assert [(sign.check.signal, sign.weight) for sign in opinion.signs] == [("a", 3.0), ("b", 0.0)]


def test_what_was_asked_and_is_not_known_is_told_once() -> None:
    case = Case()
    case.shows(check(None, "a"), 3.0)
    case.must(check(None, "a"))
    case.refutes(check(None, "c"))
    case.sign(check(None, "b"), yes=1.0)
    assert case.opinion().missing == ("a", "b")


def test_a_decider_of_3_is_73_per_cent() -> None:
    assert confidence_of(weighed(shows=(YES,))) == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-3)


def test_likely_is_what_the_opinion_will_say() -> None:
    case = Case()
    assert not case.likely
    case.shows(YES, 3.0)
    assert case.likely
