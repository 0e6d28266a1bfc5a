"""Exact arithmetic over intervals of time: unions, what they cover, what lies between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

__all__ = ["Intervals", "covered_ns", "gaps_between", "overlap_ns", "union"]

Intervals: TypeAlias = list[tuple[int, int]]
"""Pairs of start and end in whole nanoseconds, the end not included."""


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """The same time as intervals in order, none of which touch; empty ones are left out."""
    merged: Intervals = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def covered_ns(merged: Sequence[tuple[int, int]]) -> int:
    """Length of a union."""
    return sum(end - start for start, end in merged)


def gaps_between(merged: Sequence[tuple[int, int]]) -> Intervals:
    """What lies between the intervals of a union; nothing before the first or after the last."""
    return [(before[1], after[0]) for before, after in pairwise(merged)]


def overlap_ns(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> int:
    """Time that two unions have in common."""
    shared = at_a = at_b = 0
    while at_a < len(a) and at_b < len(b):
        start, end = max(a[at_a][0], b[at_b][0]), min(a[at_a][1], b[at_b][1])
        shared += max(0, end - start)
        if a[at_a][1] < b[at_b][1]:
            at_a += 1
        else:
            at_b += 1
    return shared
