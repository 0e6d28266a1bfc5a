"""EventSequence: whether an engine's events came whole: next, with a gap, or from a new engine."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["EventSequence", "SequenceVerdict"]

SequenceVerdict: TypeAlias = Literal["next", "gap", "restart"]


class EventSequence:
    """The numbers of the batches of one rank: 0 from its engine's start, each one more.

    They are told in order, so that a number that is no higher than the last one comes from an
    engine that was started anew behind our back.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    @property
    def next(self) -> int:
        """The number that should come."""
        return self._next

    def see(self, number: int) -> SequenceVerdict:
        """What a batch with this number tells. After a gap ask for those from `next` on, and go on
        with `take`; a restart begins a new sequence."""
        if number == self._next:
            return "next"
        return "gap" if number > self._next else "restart"

    def take(self, number: int) -> None:
        """The batch with this number was applied."""
        self._next = number + 1

    def restart(self) -> None:
        """The engine is a new one."""
        self._next = 0
