"""Ramps in numbers: when a planned moment comes, and how many lanes are open."""

from __future__ import annotations

import math

from mileage.loadgen.run_options import Ramp

__all__ = ["lanes_at", "ramped_s"]


def ramped_s(ramp: Ramp, planned_s: float) -> float:
    """When, since the run began, the plan's own clock shows `planned_s`; inf where never.

    That clock goes at the ramp's speed: start + (end - start) * t / over, then end. Its reading is
    the integral of it, a parabola, which is inverted here in the form that does not cancel.
    """
    first, last, over_s = ramp.start, ramp.end, ramp.over_s
    beyond_s = planned_s - (first + last) / 2 * over_s
    if beyond_s >= 0:
        if beyond_s and not last:
            return math.inf
        return over_s + (beyond_s / last if beyond_s else 0.0)
    root = math.sqrt(max(0.0, first * first + 2 * (last - first) * planned_s / over_s))
    return 2 * planned_s / (first + root) if planned_s else 0.0


def lanes_at(ramp: Ramp, now_s: float) -> int:
    """Lanes that a closed loop has open at a time, rounded down."""
    share = min(1.0, max(0.0, now_s / ramp.over_s))
    return math.floor(ramp.start + (ramp.end - ramp.start) * share + 1e-9)
