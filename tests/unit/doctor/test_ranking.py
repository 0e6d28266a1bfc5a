"""Order of findings: causes before what they bring about, the likelier before others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.case import Case
from mileage.doctor.opinion import Opinion, Severity
from mileage.doctor.ranking import CONFIDENCE_MAX, confidence_of, ranked
from mileage.doctor.rule import Rule


def rule(number: int, cause: str, *explains: str) -> Rule:
    return Rule(
        id=f"AB{number:03}",
        name=cause,
        cause=cause,
        since="0.1.0",
        needs=(),
        explains=explains,
        title="A title.",
        page="",
        fires={},
        clear={},
        silent={},
        check=lambda evidence: Case().opinion(),
    )


def found(log_odds: float, severity: Severity = "warning") -> Opinion:
    return Opinion("finding", log_odds, (), (), severity)


def order(*pairs: tuple[Rule, Opinion]) -> list[tuple[str, str | None]]:
    return [(row.rule.cause, row.consequence_of) for row in ranked(pairs)]


def test_the_likelier_comes_first() -> None:
    assert order((rule(1, "a"), found(0.5)), (rule(2, "b"), found(2.0))) == [
        ("b", None),
        ("a", None),
    ]


def test_a_cause_comes_before_its_likelier_consequence() -> None:
    assert order((rule(1, "a"), found(4.0)), (rule(2, "b", "a"), found(0.5))) == [
        ("b", None),
        ("a", "AB002"),
    ]


def test_of_two_that_explain_each_other_the_likelier_is_the_cause() -> None:
    assert order((rule(1, "a", "b"), found(1.0)), (rule(2, "b", "a"), found(2.0))) == [
        ("b", None),
        ("a", "AB002"),
    ]


def test_what_serves_nobody_comes_before_what_is_slow() -> None:
    assert order((rule(1, "a"), found(1.5)), (rule(2, "b"), found(1.0, "critical"))) == [
        ("b", None),
        ("a", None),
    ]


def test_advice_comes_last_and_brings_nothing_about() -> None:
    assert order((rule(1, "a", "b"), found(3.0, "info")), (rule(2, "b"), found(0.1))) == [
        ("b", None),
        ("a", None),
    ]


def test_of_two_rules_for_one_cause_the_better_stays() -> None:
    rows = ranked(((rule(1, "a"), found(1.0)), (rule(2, "a"), found(2.0))))
    assert [row.rule.id for row in rows] == ["AB002"]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.floats(0.01, 9), st.lists(st.integers(0, 5), max_size=3)),
        max_size=8,
    )
)
def test_every_cause_stands_once_and_consequences_after_all_causes(
    drawn: list[tuple[int, float, list[int]]],
) -> None:
    pairs = [
        (rule(n, f"c{cause}", *(f"c{other}" for other in others)), found(odds))
        for n, (cause, odds, others) in enumerate(drawn)
    ]
    rows = ranked(pairs)
    causes = [row.rule.cause for row in rows]
    assert sorted(causes) == sorted({pair[0].cause for pair in pairs})
    flags = [row.consequence_of is not None for row in rows]
    assert flags == sorted(flags)
    assert not rows or rows[0].consequence_of is None
    by_id = {row.rule.id: row for row in rows}
    for row in rows:
        if row.consequence_of is not None:
            parent = by_id[row.consequence_of]
            assert row.rule.cause in parent.rule.explains
            assert parent.rule.cause != row.rule.cause


def test_confidence_is_even_at_even_odds_and_never_certain() -> None:
    assert confidence_of(found(0.0)) == 0.5
    assert confidence_of(found(50.0)) == CONFIDENCE_MAX
    assert confidence_of(found(-40.0)) == 0.0
