"""LimitBounds: between what a limit may move, whatever a policy thinks of it."""

from __future__ import annotations

import msgspec

from mileage.policy.limits.limit import LimitSignals

__all__ = ["UNBOUNDED", "LimitBounds", "ceiling_of", "clamped"]


class LimitBounds(msgspec.Struct, frozen=True, gc=False):
    """`limit_min..limit_max`, and never above what the engine itself runs at once.

    Policies keep their own state within it: a limit that grew unseen beyond what is in force would
    need as many steps to come back to where it matters.
    """

    limit_min: int = 1
    limit_max: int = 100_000

    def ceiling(self, signals: LimitSignals) -> int:
        """The highest limit that makes sense. An engine that says 0 or less says nothing."""
        return ceiling_of(self.limit_max, signals.running_max or 0)

    def clamp(self, limit: float, signals: LimitSignals) -> int:
        """The limit (finite) as a whole number within the bounds; the engine's own one wins."""
        return clamped(limit, self.limit_min, self.ceiling(signals))


def ceiling_of(limit_max: int, running_max: int) -> int:
    """The highest limit that makes sense, for an engine that runs so many; below 1: not known."""
    return min(limit_max, running_max) if running_max >= 1 else limit_max


def clamped(limit: float, limit_min: int, ceiling: int) -> int:
    """The limit as a whole number within 1, `limit_min` and `ceiling`, which wins."""
    # A hair more, so that a division's rounding does not cost a request.
    return int(min(max(limit + 1e-6, limit_min, 1), ceiling))


UNBOUNDED = LimitBounds()
