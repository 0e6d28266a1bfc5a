"""EngineSlots: how many requests an engine runs at once, where it does not say."""

from __future__ import annotations

from mileage.core.replica import ReplicaView

__all__ = ["EngineSlots"]

_GROWTH = 1.25
_FULL_RATIO = 0.9
_RUNNING_MAX = 100_000


class EngineSlots:
    """What runs while others wait is all that the engine runs at once.

    So the most that was seen running while something waited there, twice in a row, is taken for
    its limit: more sent to it would only wait in its own queue, first come, first served. (Once may
    have been a burst that was still being let in.) That may have been the KV cache and not the
    slots, and it may have been for long prompts: so whenever the engine runs nearly that many and
    nothing waits, a quarter more is tried.
    """

    __slots__ = ("_full", "_says", "_seen", "told")

    def __init__(self) -> None:
        self.told: int | None = None
        """By the operator; nothing else counts then."""
        self._says: int | None = None
        self._seen: int | None = None
        self._full: int | None = None  # what ran at the last look, where something waited

    @property
    def most(self) -> int | None:
        """Requests at once; None where nothing is known of it."""
        if self.told is not None:
            return self.told
        return self._says if self._says is not None else self._seen

    def observed(self, view: ReplicaView) -> None:
        """The engine was scraped. What makes no sense is left out."""
        says = view.running_max
        if says is not None and 1 <= says <= _RUNNING_MAX:
            self._says = says
        running, waiting = view.running, view.waiting
        if running is None or waiting is None or not 1 <= running <= _RUNNING_MAX:
            return
        before, self._full = self._full, running if waiting > 0 else None
        if waiting > 0:
            if before is not None:
                self._seen = max(self._seen or 0, before, running)
        elif self._seen is not None and running >= _FULL_RATIO * self._seen:
            self._seen = int(self._seen * _GROWTH) + 1

    def forget(self) -> None:
        """There may be another engine now."""
        self._says = self._seen = self._full = None
