"""Verdict: which bars the figures meet, and whether the run can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["FAILED", "NO_VERDICT", "PASSED", "Bar", "Verdict", "verdict"]

PASSED, FAILED, NO_VERDICT = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Bar:
    """What one figure must reach: at least, or below, the limit.

    `comparative`: the figure is ours over another's, so a disturbance may as well have made it
    better.
    """

    figure: str
    limit: float
    at_least: bool = True
    comparative: bool = False

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
    says nothing whatever its figures. `doubts`: disturbances; they turn a missed bar into no
    verdict, and a met one that is comparative, but leave the others alone, which a quiet machine
    would meet all the more.
    """
    missed = []
    missing = []
    uncertain = []
    for bar in bars:
        value = figures.get(bar.figure)
        if not isinstance(value, (int, float)):
            missing.append(f"{bar.figure} was not measured")
        elif not bar.met(value):
            missed.append(f"{bar} missed: {value:.4g}")
        elif bar.comparative and doubts:
            uncertain.append(f"{bar} met ({value:.4g}), but not on a quiet machine")
    if failures:
        return Verdict(FAILED, (*failures, *missed, *missing))
    if invalid or missing:
        return Verdict(NO_VERDICT, (*invalid, *missing, *missed))
    if doubts and (missed or uncertain):
        return Verdict(NO_VERDICT, (*missed, *uncertain, *doubts))
    if missed:
        return Verdict(FAILED, tuple(missed))
    return Verdict(PASSED, tuple(doubts))
