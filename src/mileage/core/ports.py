"""Ports: what one adapter needs of another; the composition root passes the real object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mileage.core.actions import Action
from mileage.core.events import Event
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline

__all__ = ["JournalSink", "RequestLog"]


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


class JournalSink(Protocol):
    """Record of what the controller was told and what it answered. No call raises, and none but
    `flush` and `close` need make a system call: requests go on whatever becomes of the journal."""

    def start(self, snapshot: Callable[[], bytes]) -> None:
        """The controller is new; `snapshot` gives its state at any later time, between events."""
        ...

    def handled(self, now_s: float, event: Event, actions: Sequence[Action], /) -> None:
        """The controller was told the event, and answered with the actions."""
        ...

    def failed(self, now_s: float, event: Event, error: Exception, /) -> None:
        """The controller was told the event, and raised."""
        ...

    def flush(self) -> None:
        """Hand what is buffered to the kernel; called about once a second."""
        ...

    def close(self) -> None:
        """No event follows."""
        ...

    @property
    def ok(self) -> bool:
        """Whether events are recorded now."""
        ...

    @property
    def records_total(self) -> int:
        """Events recorded so far."""
        ...

    @property
    def dropped_total(self) -> int:
        """Events that could not be recorded."""
        ...
