"""Paces: which calls are due, on a schedule (open loop) or when a lane is free (closed loop)."""

from __future__ import annotations

import heapq
import math
from typing import Protocol

from mileage.loadgen.feed import Feed
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.ramp_time import lanes_at, ramped_s
from mileage.loadgen.run_options import RunOptions

__all__ = ["REST_S", "ClosedPace", "OpenPace", "Pace", "make_pace"]

REST_S = 0.1
"""A lane rests for so long after a failure: a server that is down is asked ten times a second by
each lane, not as fast as the generator can."""


class Pace(Protocol):
    """Says what is due. Times are seconds since the run began."""

    def next_s(self) -> float:
        """When the next call is due, as far as is known; inf where none is."""

    def take(self, now_s: float) -> tuple[PlannedCall, float] | None:
        """A call that is due, and when it was; None where none is."""

    def free(self, now_s: float, *, failed: bool) -> None:
        """A call is over."""

    @property
    def over(self) -> bool:
        """No call will be due any more."""


class OpenPace:
    """Calls are due when the plan says, whatever becomes of the earlier ones."""

    def __init__(self, feed: Feed, options: RunOptions, *, until_s: float) -> None:
        self._feed, self._ramp, self._until_s = feed, options.ramp, until_s
        self._due_s = self._look()

    def next_s(self) -> float:
        """When the next call is due."""
        return self._due_s

    def take(self, now_s: float) -> tuple[PlannedCall, float] | None:
        """The next call, where it is due."""
        due_s = self._due_s
        if due_s > now_s:
            return None
        call = self._feed.pop()
        assert call is not None
        self._due_s = self._look()
        return call, due_s

    def free(self, now_s: float, *, failed: bool) -> None:
        """It changes nothing."""

    @property
    def over(self) -> bool:
        """The plan has come to its end, or to the end of the window."""
        return self._due_s == math.inf

    def _look(self) -> float:
        call = self._feed.peek()
        if call is None:
            return math.inf
        due_s = call.scheduled_s
        if self._ramp is not None:
            due_s = ramped_s(self._ramp, due_s)
        return due_s if due_s < self._until_s else math.inf


class ClosedPace:
    """Each lane has a call of its own on its way; when it is over, its next one is due.

    A lane's call is due when the lane is free and has thought; after a failure it rests, too.
    """

    def __init__(self, feed: Feed, options: RunOptions, *, until_s: float) -> None:
        self._feed, self._options, self._until_s = feed, options, until_s
        self._busy = 0
        self._due_s: list[float] = []
        """When each lane that is free may go on; a heap."""
        self._ended = False

    def next_s(self) -> float:
        """When the next lane may go on; lanes that a ramp adds are not foreseen."""
        return self._due_s[0] if self._due_s else math.inf

    def take(self, now_s: float) -> tuple[PlannedCall, float] | None:
        """A call for a lane that is free."""
        if now_s >= self._until_s:
            self._ended = True
        if self._ended:
            self._due_s.clear()
            return None
        lanes = self._lanes(now_s)
        while self._due_s and self._busy + len(self._due_s) > lanes:
            heapq.heappop(self._due_s)  # a ramp closes lanes as they come free
        for _ in range(lanes - self._busy - len(self._due_s)):
            heapq.heappush(self._due_s, now_s)
        if not self._due_s or self._due_s[0] > now_s:
            return None
        call = self._feed.pop()
        if call is None:
            self._ended = True
            self._due_s.clear()
            return None
        self._busy += 1
        return call, heapq.heappop(self._due_s)

    def free(self, now_s: float, *, failed: bool) -> None:
        """A lane is free."""
        self._busy -= 1
        pause_s = self._options.think_s + (REST_S if failed else 0.0)
        heapq.heappush(self._due_s, now_s + pause_s)

    @property
    def over(self) -> bool:
        """The plan has come to its end, or the window has."""
        return self._ended

    def _lanes(self, now_s: float) -> int:
        if self._options.ramp is not None:
            return lanes_at(self._options.ramp, now_s)
        assert self._options.concurrency is not None
        return self._options.concurrency


def make_pace(feed: Feed, options: RunOptions, *, until_s: float) -> Pace:
    """The pace of `options.mode`; nothing is due at `until_s` or later."""
    if options.mode == "closed":
        return ClosedPace(feed, options, until_s=until_s)
    return OpenPace(feed, options, until_s=until_s)
