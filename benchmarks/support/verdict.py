"""Verdict: which bars the figures meet, and whether the run can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["FAILED", "NO_VERDICT", "PASSED", "Bar", "Verdict", "verdict"]

PASSED, FAILED, NO_VERDICT = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Bar:
    """What one figure must reach: at least, or below, the limit."""

    figure: str
    limit: float
    at_least: bool = True

    def met(self, value: float) -> bool:
        """Whether `value` is on the right side of the limit."""
        return value >= self.limit if self.at_least else value < self.limit

    def __str__(self) -> str:
        return f"{self.figure} {'>=' if self.at_least else '<'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Exit code and the reasons for it, one a line."""

    exit_code: int
    reasons: tuple[str, ...]


def verdict(
    figures: Mapping[str, object],
    bars: Sequence[Bar],
    *,
    failures: Sequence[str] = (),
    invalid: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> Verdict:
    """Judge a run.

    `failures`: what the program under test did wrong, always a failure. `invalid`: why the run
    says nothing whatever its figures. `doubts`: disturbances that can only have made the figures
    worse; they turn a missed bar into no verdict, and leave a met one alone.
    """
    missed = []
    missing = []
    for bar in bars:
        value = figures.get(bar.figure)
        if not isinstance(value, (int, float)):
            missing.append(f"{bar.figure} was not measured")
        elif not bar.met(value):
            missed.append(f"{bar} missed: {value:.4g}")
    if failures:
        return Verdict(FAILED, (*failures, *missed, *missing))
    if invalid or missing:
        return Verdict(NO_VERDICT, (*invalid, *missing, *missed))
    if missed:
        return Verdict(NO_VERDICT if doubts else FAILED, (*missed, *doubts))
    return Verdict(PASSED, tuple(doubts))
