"""EventQueue: what happens next, ordered by time, then priority, then the order of asking."""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

__all__ = ["EventQueue"]

T = TypeVar("T")


class EventQueue(Generic[T]):
    """A heap keyed (time, priority, sequence). The payloads themselves are never compared.

    Of events at one time those of the lower priority number come first, and among those the one
    that was pushed first: the order depends on nothing else.
    """

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, T]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The time of the next event; inf: there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def push(self, time_s: float, priority: int, payload: T) -> int:
        """Add an event. Returns its sequence number, by which a host knows an outdated one."""
        self._sequence = sequence = self._sequence + 1
        heapq.heappush(self._heap, (time_s, priority, sequence, payload))
        return sequence

    def pop(self) -> tuple[float, int, int, T]:
        """Take the next event: (time, priority, sequence, payload). IndexError without any."""
        return heapq.heappop(self._heap)
