"""Memory: how many requests fit into the KV cache, by the engine's own figure."""

from __future__ import annotations

from mileage.core.replica import ReplicaView
from mileage.policy.limits.readings import ratio_of

__all__ = ["KvMemory"]

_USAGE_MIN = 0.05


class KvMemory:
    """Bound of the limit by KV-cache usage: what runs now, scaled to where usage meets the mark.

    Holds while the mix of context lengths stays as it is. A fresh figure gives a bound; without
    one nothing is known, and `lost` tells whether there has been one before: an engine that has
    stopped telling may be full, one that never told has to be run by its latency alone.
    """

    __slots__ = ("_mark_ratio", "_told", "running", "usage_ratio")

    def __init__(self, mark_ratio: float) -> None:
        self._mark_ratio = mark_ratio
        self._told = False
        self.usage_ratio: float | None = None
        """The fresh figure, None without one."""
        self.running = 0
        """Requests that fill it so far."""

    def observe(self, view: ReplicaView | None, in_flight: int) -> None:
        """Take the figures of a fresh view; None: there is no fresh one.

        `in_flight`, our own requests, stands for what the engine runs where it does not tell.
        """
        self.usage_ratio = None if view is None else ratio_of(view.kv_cache_usage_ratio)
        running = None if view is None else view.running
        self.running = in_flight if running is None or running < 0 else running
        self._told = self._told or self.usage_ratio is not None

    @property
    def lost(self) -> bool:
        """The engine has told its usage before, and there is no fresh figure now."""
        return self._told and self.usage_ratio is None

    @property
    def above_mark(self) -> bool:
        """The cache is fuller than it should be."""
        return self.usage_ratio is not None and self.usage_ratio > self._mark_ratio

    def bound(self) -> float | None:
        """Requests that fit up to the mark, going by those that run now; None: unknown.

        An almost empty cache bounds nothing yet: too little of it is in use to be scaled.
        """
        if self.usage_ratio is None or self.usage_ratio < _USAGE_MIN or self.running < 1:
            return None
        return max(1.0, self.running * self._mark_ratio / self.usage_ratio)
