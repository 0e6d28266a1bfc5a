"""Ports: what one adapter needs of another; the composition root passes the real object."""

from __future__ import annotations

from typing import Protocol

from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline

__all__ = ["RequestLog"]


class RequestLog(Protocol):
    """Durable record of requests: survives the death of the process, not of the machine.

    Both methods return False, and raise nothing, when the record could not be written (a full
    disk, say); the caller decides whether the request may go on without one.
    """

    def intent(self, request: Request, arrived_at_utc_ns: int) -> bool:
        """Record that the request is about to be dispatched."""
        ...

    def finish(self, timeline: RequestTimeline) -> bool:
        """Record how the request ended; called before the answer's last byte is sent."""
        ...
