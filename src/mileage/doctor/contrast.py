"""Contrasts: two arms of a comparison, one with a setting and one without, and what differs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mileage.doctor.arms import UNKNOWN_RATIO, Arm, Comparison, Ratio
from mileage.doctor.check import Check
from mileage.doctor.evidence import Evidence

__all__ = ["Contrast", "contrasts", "differing", "slowest"]


class Contrast(msgspec.Struct, frozen=True):
    """Arm `one` has the thing in question, arm `other` does not; ratios are of `one` to `other`."""

    comparison: Comparison
    one: Arm
    other: Arm
    besides: frozenset[str]
    """Other facts, no signals, in which the two differ."""

    @property
    def speed(self) -> Ratio:
        """How many times faster `one` is: below 1 it is slower."""
        return self.comparison.speed(self.one, self.other)

    @property
    def throughput(self) -> Ratio:
        """The ratio of throughputs alone."""
        return self.comparison.throughput(self.one, self.other)

    def ratio(self, signal: str) -> Ratio:
        """The ratio of one signal."""
        return self.comparison.ratio(signal, self.one, self.other)

    def ratio_of(self, *signals: str) -> Ratio:
        """The ratio of the first of the signals that both arms tell."""
        known = (found for signal in signals if (found := self.ratio(signal)).known)
        return next(known, UNKNOWN_RATIO)

    def clean(self) -> Check:
        """Do the two differ in nothing else?"""
        truth = not self.besides and self.comparison.restarted_between_arms is not True
        return Check("comparisons", sorted(self.besides) or None, "nothing else differs", truth)


def contrasts(
    evidence: Evidence,
    here: Callable[[Arm], bool],
    there: Callable[[Arm], bool],
    *about: str,
) -> tuple[Contrast, ...]:
    """Every two arms of which one has the thing (`here`) and the other has not (`there`).

    `about`: keys that may differ. Where an arm is marked as current, it is the one that has it; a
    comparison whose current arm does not have it is about the past and is left out.
    """
    found: list[Contrast] = []
    for comparison in evidence.comparisons:
        current = comparison.current
        arms = comparison.arms if current is None else (current,)
        found += [
            Contrast(comparison, one, other, differing(one, other) - set(about))
            for one in arms
            if here(one)
            for other in comparison.arms
            if other is not one and there(other)
        ]
    return tuple(found)


def differing(one: Arm, other: Arm) -> frozenset[str]:
    """Facts that both arms know, that are no signals, and that differ."""
    keys = {*one.setup(), *other.setup()}
    return frozenset(
        key
        for key in keys
        if key in one.values and key in other.values and one.values[key] != other.values[key]
    )


def slowest(pairs: tuple[Contrast, ...]) -> Contrast | None:
    """The contrast in which `one` does worst, of those that tell a speed.

    Where some differ in nothing else (a sweep of another thing beside it), only those count.
    """
    told = [pair for pair in pairs if pair.speed.known]
    alone = [pair for pair in told if not pair.besides]
    return min(alone or told, key=lambda pair: pair.speed.value.middle, default=None)
