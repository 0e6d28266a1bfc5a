"""Ports: what one adapter needs of another; the composition root passes the real object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline

__all__ = ["RequestLog"]


class RequestLog(Protocol):
    """Durable record of requests: survives the death of the process, not of the machine.

    Records are made apart from their writing, so that those of one turn of an event loop can be
    written together.
    """

    def encode_intent(self, request: Request, arrived_at_utc_ns: int, /) -> bytes:
        """The record that the request is about to be dispatched."""
        ...

    def encode_finish(self, timeline: RequestTimeline, /) -> bytes:
        """The record of how the request ended; written before the answer's last byte is sent."""
        ...

    def write(self, records: Sequence[bytes]) -> bool:
        """Write all of the records or none; False, and no exception, where that is not possible
        (a full disk, say): the caller decides whether requests may go on without a record."""
        ...

    def close(self) -> None:
        """No record follows: what reads the log need not wait for one."""
        ...
