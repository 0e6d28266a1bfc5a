"""Answers put together: yes, no and not known, after Kleene."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.check import Check, both, either

TRUTHS = st.lists(st.sampled_from((True, False, None)), min_size=1, max_size=5)


def checks(truths: Sequence[bool | None]) -> list[Check]:
    return [Check(f"signal_{n}", 1, "> 0", truth) for n, truth in enumerate(truths)]


def completions(truths: Sequence[bool | None]) -> list[list[bool]]:
    """All that the facts could be, were the unknown ones known."""
    whole: list[list[bool]] = [[]]
    for truth in truths:
        whole = [[*row, value] for row in whole for value in _values(truth)]
    return whole


def _values(truth: bool | None) -> tuple[bool, ...]:
    return (True, False) if truth is None else (truth,)


@given(TRUTHS)
def test_both_is_known_where_no_missing_fact_could_change_it(truths: list[bool | None]) -> None:
    outcomes = {all(row) for row in completions(truths)}
    assert both(*checks(truths)).truth is (outcomes.pop() if len(outcomes) == 1 else None)


@given(TRUTHS)
def test_either_is_known_where_no_missing_fact_could_change_it(truths: list[bool | None]) -> None:
    outcomes = {any(row) for row in completions(truths)}
    assert either(*checks(truths)).truth is (outcomes.pop() if len(outcomes) == 1 else None)


@given(TRUTHS)
def test_not_both_is_either_not(truths: list[bool | None]) -> None:
    single = checks(truths)
    assert both(*single).negated().truth is either(*(c.negated() for c in single)).truth
    assert both(*single).negated().negated().truth is both(*single).truth


@given(TRUTHS)
def test_every_single_check_is_evidence_or_asked_for(truths: list[bool | None]) -> None:
    joined = either(both(*checks(truths)), Check("other", 2, "< 1", None))
    told = {each.signal for each in joined.evidence()}
    assert told == {f"signal_{n}" for n, truth in enumerate(truths) if truth is not None}
    assert set(joined.asked()) == {
        "other",
        *(f"signal_{n}" for n, truth in enumerate(truths) if truth is None),
    }


def test_other_words_change_no_answer() -> None:
    check = Check("itl_p99_s", 0.2, "> 0.1", True)
    assert check.said("late") == Check("itl_p99_s", 0.2, "late", True)


def test_a_joined_check_names_each_signal_once() -> None:
    joined = both(
        Check("a", 1, "> 0", True), Check("a", 1, "< 2", True), Check("b", 3, "> 0", True)
    )
    assert joined.signal == "a and b"
    assert joined.limit == "> 0 and < 2 and > 0"
