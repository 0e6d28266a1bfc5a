"""Silence: how long nothing at all has come from a run's targets while calls waited for it."""

from __future__ import annotations

from collections.abc import Callable

from mileage.measure.call_record import CallOutcome, CallRecord

__all__ = ["Silence"]

_UNHEARD: frozenset[CallOutcome] = frozenset(("timeout", "connect", "broken", "unsent"))
"""Of these no byte need have come; `cancelled` is told by what came before."""


class Silence:
    """Watches for targets that say nothing for `limit_s` seconds, as a process that is stopped: the
    kernel goes on to accept its connections, and each call ends only by its own timeout.

    Silence begins with the first call that is sent after something was heard, so that times in
    which nothing is asked are none. Calls that end by their timeout do not end it.
    """

    __slots__ = ("_limit_s", "_since_s")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since_s: float | None = None

    def asked(self, now_s: float) -> None:
        """A call was sent."""
        if self._since_s is None:
            self._since_s = now_s

    def over(self, record: CallRecord) -> None:
        """A call has ended. Times are seconds since the run began."""
        since_s = self._since_s
        if since_s is not None and (heard_s := _heard_s(record)) is not None and heard_s >= since_s:
            self._since_s = None

    def is_too_long(self, now_s: float, heard_s: Callable[[], float | None]) -> bool:
        """Whether it has lasted for the limit. `heard_s` tells when a byte came last for the calls
        that are on their way, and is asked only where they could be all that is heard of."""
        since_s = self._since_s
        if since_s is None or now_s - since_s < self._limit_s:
            return False
        last_s = heard_s()
        if last_s is not None and last_s > since_s:
            self._since_s = since_s = last_s
        return now_s - since_s >= self._limit_s


def _heard_s(record: CallRecord) -> float | None:
    """When the last byte for this call came, as far as its record tells."""
    if record.outcome not in _UNHEARD and record.outcome != "cancelled":
        return record.ended_s
    return record.token_times_s[-1] if record.token_times_s else record.answered_s
