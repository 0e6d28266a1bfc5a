"""Request ids: 63-bit integers in order of time, unique over workers and restarts."""

from __future__ import annotations

__all__ = ["RequestIds"]

_WORKER_BITS = 6


class RequestIds:
    """`next(utc_ns)` gives (microseconds << 6) | worker, and always a higher one than before."""

    __slots__ = ("_last", "_worker")

    def __init__(self, worker: int) -> None:
        if not 0 <= worker < 1 << _WORKER_BITS:
            raise ValueError(f"worker {worker} is not in 0..{(1 << _WORKER_BITS) - 1}")
        self._worker = worker
        self._last = 0

    def next(self, utc_ns: int) -> int:
        """The next id, for a request that arrived at this wall time."""
        microseconds = utc_ns // 1000
        if microseconds <= self._last:
            microseconds = self._last + 1
        self._last = microseconds
        return microseconds << _WORKER_BITS | self._worker
