"""TargetLoad: how many calls each target has on its way, and which has the fewest."""

from __future__ import annotations

__all__ = ["TargetLoad"]


class TargetLoad:
    """Counts calls on their way to each of `targets` targets, one or more."""

    __slots__ = ("_counts", "_next")

    def __init__(self, targets: int) -> None:
        self._counts = [0] * targets
        self._next = 0

    def begin(self, target: int) -> None:
        """A call is sent there."""
        self._counts[target] += 1

    def end(self, target: int) -> None:
        """It is over there."""
        self._counts[target] -= 1

    def least(self) -> int:
        """The target with the fewest calls; of equal ones the next in turn, so that an idle fleet
        is not measured by its first replica alone."""
        size = len(self._counts)
        turn = [(self._next + step) % size for step in range(size)]
        found = min(turn, key=self._counts.__getitem__)
        self._next = (found + 1) % size
        return found
