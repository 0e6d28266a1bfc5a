"""Readings: what of an observation can be used: fresh, finite, and possible at all."""

from __future__ import annotations

import math

from mileage.core.replica import ReplicaView

__all__ = ["count_of", "fresh", "positive", "ratio_of"]

_MOST = 1e12


def fresh(view: ReplicaView | None, now_s: float, age_max_s: float) -> ReplicaView | None:
    """The view if it is at most `age_max_s` old, else None."""
    if view is None or not math.isfinite(view.observed_s) or view.age_s(now_s) > age_max_s:
        return None
    return view


def ratio_of(value: float | None) -> float | None:
    """The value if it is a ratio in 0..1, else None: engines have been seen to report 1.4 or NaN.

    A hair above 1 is rounding, and taken for 1.
    """
    if value is None or not 0.0 <= value <= 1.001:
        return None
    return min(value, 1.0)


def positive(value: float | None) -> float | None:
    """The value if it is above 0 and of this world, so that sums of squares are; else None."""
    return value if value is not None and 1.0 / _MOST < value < _MOST else None


def count_of(value: float | None) -> float:
    """The value if it is at least 0 and of this world, else 0: for our own counts."""
    return value if value is not None and 0.0 <= value < _MOST else 0.0
