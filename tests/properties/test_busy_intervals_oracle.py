"""Arithmetic over intervals agrees with one cell of time after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.collect.busy_intervals import covered_ns, gaps_between, overlap_ns, union

SPANS = st.lists(st.tuples(st.integers(-40, 40), st.integers(-40, 40)), max_size=20)


def cells(spans: list[tuple[int, int]]) -> set[int]:
    return {cell for start, end in spans for cell in range(start, end)}


@given(SPANS)
def test_a_union_covers_what_its_intervals_cover(spans: list[tuple[int, int]]) -> None:
    merged = union(spans)
    assert cells(merged) == cells(spans)
    assert covered_ns(merged) == len(cells(spans))
    assert union(reversed(merged)) == merged


@given(SPANS)
def test_gaps_are_what_lies_between_and_is_not_covered(spans: list[tuple[int, int]]) -> None:
    covered = cells(spans)
    between = set(range(min(covered, default=0), max(covered, default=-1) + 1)) - covered
    gaps = gaps_between(union(spans))
    assert cells(gaps) == between
    assert all(end > start for start, end in gaps)


@given(SPANS, SPANS)
def test_an_overlap_is_what_both_cover(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    assert overlap_ns(union(a), union(b)) == len(cells(a) & cells(b))
