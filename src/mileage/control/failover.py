"""Failover: where a request goes whose attempt has failed."""

from __future__ import annotations

from mileage.control.flight import Flight
from mileage.control.replica import Replica
from mileage.control.replicas import Replicas, Takers
from mileage.core.events import Failed
from mileage.policy.routing import Candidates, Router

__all__ = ["blame", "next_replica"]

_NOT_ITS_FAULT = ("busy", "unloaded")

_RETRY_IN_PLACE = ("connect", "broken")
_LOST = ("broken", "timeout")
_LOST_MAX = 2
"""Attempts of one request that end so. It may be the request itself that breaks engines: what two
of them did not survive must not reach all."""


def blame(
    flight: Flight, replica: Replica, event: Failed, replicas: Replicas, now_s: float
) -> None:
    """What a failed attempt of the request says of its replica."""
    if event.kind in _NOT_ITS_FAULT:
        changed = replica.breaker.released(flight.ticket)
    else:
        replica.failure = event.kind
        changed = replica.breaker.failed(flight.ticket, now_s)
    if changed:
        replicas.refresh(replica)
    if event.kind == "unloaded":
        replicas.lost(replica, flight.request.model)


def next_replica(
    flight: Flight,
    takers: Takers,
    event: Failed,
    now_s: float,
    *,
    attempts_max: int,
    replicas: Replicas,
    router: Router,
) -> Replica | None:
    """Where a failed request is tried next: a replica that it has not tried; else None.

    Where there is only the one that failed, a lost connection is tried again on it. A timeout
    or an engine's own error is not: it would cost the same again. Neither is one where all our
    connections are in use: they are a moment later as well.
    """
    if event.kind in _LOST:
        flight.lost += 1
    if flight.attempts >= attempts_max or flight.lost >= _LOST_MAX:
        return None
    if now_s >= replicas.half_open_due_s:
        replicas.tick(now_s)
    own = takers.of_arm(flight.arm)
    found = _untried(own, flight, now_s, router)
    if found is None and own is not takers:  # rather the other arm of an experiment than no answer
        found = _untried(takers, flight, now_s, router)
    if found is not None:
        return found
    if event.kind in _RETRY_IN_PLACE and takers.closed.loads == (flight.replica,):
        return flight.replica
    return None


def _untried(takers: Takers, flight: Flight, now_s: float, router: Router) -> Replica | None:
    tried = flight.tried
    untried = [replica for replica in takers.closed.loads if not replica.bit & tried]
    if untried:
        return flight.choose(router, Candidates(untried), now_s)
    return next((replica for replica in takers.half_open if not replica.bit & tried), None)
