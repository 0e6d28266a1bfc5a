"""A check put to the arms of a comparison where the present deployment does not tell."""

from __future__ import annotations

from collections.abc import Callable

from mileage.doctor.check import Check
from mileage.doctor.evidence import Evidence

__all__ = ["in_some_arm"]


def in_some_arm(e: Evidence, check: Callable[[Evidence], Check]) -> Check:
    """The check on the present deployment; where that is not known, on an arm that meets it.

    Only arms of comparisons in which none is marked as the present one: of points of a load, and
    of reports that do not say which arm is the present one, each is evidence. The last comes first:
    it is the highest load, or the latest state.
    """
    now = check(e)
    if now.truth is not None:
        return now
    for comparison in e.comparisons:
        if comparison.current is not None:
            continue
        for arm in reversed(comparison.arms):
            found = check(e.beside(arm.values))
            if found.truth:
                return found
    return now
