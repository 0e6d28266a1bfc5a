"""Feed: takes calls from a plan ahead of time, so that building bodies delays no send."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from mileage.core.errors import MileageError
from mileage.loadgen.planned_call import PlannedCall

__all__ = ["Feed"]

_CALLS_MAX = 4096
_BYTES_MAX = 64 * 1024 * 1024


class Feed:
    """The next calls of a plan: up to 4,096 of them, or 64 MiB of bodies, are held ready.

    A plan that breaks off with one of our errors ends there, and `error` tells why.
    """

    def __init__(self, calls: Iterable[PlannedCall]) -> None:
        self._plan = iter(calls)
        self._ready: deque[PlannedCall] = deque()
        self._bytes = 0
        self._ended = False
        self.error: str | None = None

    @property
    def low(self) -> bool:
        """Less than half of what may be held is, and the plan has more."""
        return not self._ended and len(self._ready) < _CALLS_MAX // 2 and self._bytes < _BYTES_MAX

    def fill(self, for_s: float) -> None:
        """Take calls ahead until enough are ready, or for so long; at least one."""
        until_s = time.monotonic() + for_s
        while not self._ended and len(self._ready) < _CALLS_MAX and self._bytes < _BYTES_MAX:
            self._take()
            if time.monotonic() >= until_s:
                return

    def peek(self) -> PlannedCall | None:
        """The next call; None at the plan's end."""
        if not self._ready:
            self._take()
        return self._ready[0] if self._ready else None

    def pop(self) -> PlannedCall | None:
        """Take the next call; None at the plan's end."""
        call = self.peek()
        if call is not None:
            self._ready.popleft()
            self._bytes -= len(call.body)
        return call

    def _take(self) -> None:
        if self._ended:
            return
        try:
            call = next(self._plan, None)
        except MileageError as error:
            call, self.error = None, str(error)
        if call is None:
            self._ended = True
            return
        self._ready.append(call)
        self._bytes += len(call.body)
