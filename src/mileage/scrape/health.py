"""Health: when checks in a row make a replica up or down. Pure: no clock, no I/O."""

from __future__ import annotations

from typing import Literal

__all__ = ["FAILURES_MAX", "TIMEOUTS_MAX", "Health", "HealthState"]

FAILURES_MAX = 2
"""Failed checks in a row that take a replica down, where it refused, broke off or said no."""
TIMEOUTS_MAX = 5
"""The same, where some of them only got no answer in time."""

HealthState = Literal["starting", "up", "down"]
"""starting: not one verdict yet."""


class Health:
    """Up after one success; down after `failures_max` failures or `timeouts_max` of both sorts.

    A timeout weighs less because a busy engine answers late: its HTTP threads wait behind a long
    prefill. All replicas are busy at once, and must not all be taken away at that moment; requests
    that one of them really does not answer are the circuit breaker's work.
    """

    def __init__(
        self, *, failures_max: int = FAILURES_MAX, timeouts_max: int = TIMEOUTS_MAX
    ) -> None:
        self.state: HealthState = "starting"
        self.failures_in_a_row = 0
        self._failures_max, self._timeouts_max = failures_max, timeouts_max
        self._refusals = 0

    def succeeded(self) -> bool:
        """Note a check that went well; True if that brought the replica up."""
        self.failures_in_a_row = self._refusals = 0
        came_up = self.state != "up"
        self.state = "up"
        return came_up

    def failed(self, *, timed_out: bool) -> bool:
        """Note a check that failed; True if that took the replica down."""
        self.failures_in_a_row += 1
        self._refusals += not timed_out
        spent = self._refusals >= self._failures_max or self.failures_in_a_row >= self._timeouts_max
        went_down = spent and self.state != "down"
        if spent:
            self.state = "down"
        return went_down
