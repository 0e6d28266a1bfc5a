"""Company: requests that wait for others to go upstream with them in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mileage.control.flight import Flight
from mileage.core.actions import Action, Hold, Join

if TYPE_CHECKING:
    from mileage.control.dispatcher import Dispatcher

__all__ = ["collect", "collected"]

_NOTHING: tuple[Action, ...] = ()


def collect(dispatcher: Dispatcher, flight: Flight, now_s: float) -> Sequence[Action]:
    """Send a request that others may go with, or hold it for them, or let it go with them."""
    request = flight.request
    loads = flight.takers.closed.loads
    busy = min((replica.in_flight for replica in loads), default=0)
    verdict = dispatcher.batches.offer(request, busy, now_s)
    released: Sequence[Action] = _NOTHING
    if verdict.kind == "join" and verdict.leader_id is not None:
        leader = dispatcher.flights[verdict.leader_id]
        del dispatcher.flights[request.id]
        dispatcher.merges.ended(request.id)
        dispatcher.merges.join(request.id, leader.request.id)
        leader.take(flight)
        actions: Sequence[Action] = (Join(request.id, leader.request.id, "batch"),)
        dispatcher.told += actions
    elif verdict.kind == "hold":
        flight.collecting = True
        actions = (Hold(request.id), *dispatcher.wake(now_s))
    else:
        actions = dispatcher.place(flight, now_s)
    if verdict.release is not None:
        released = collected(dispatcher, verdict.release, now_s)
    return (*actions, *released)


def collected(dispatcher: Dispatcher, leader_id: int, now_s: float) -> Sequence[Action]:
    """The window of a leader is over: it goes on like any other request."""
    flight = dispatcher.flights.get(leader_id)
    if flight is None or not flight.collecting:
        return _NOTHING
    flight.collecting = False
    return dispatcher.place(flight, now_s)
