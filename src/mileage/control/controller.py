"""Controller: events and the time come in, actions go out; composes the policies."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.replicas import Replica, Replicas, ReplicaState, Route, Takers
from mileage.core.actions import Action, Dispatch, Reject, RejectReason, WakeAt
from mileage.core.bounds import require_at_least
from mileage.core.events import (
    Arrived,
    Cancelled,
    Event,
    Failed,
    Finished,
    FirstToken,
    Observed,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from mileage.core.request import Endpoint, Request
from mileage.policy.load import work_of
from mileage.policy.routing import Candidates, Router

__all__ = ["Controller"]

_NOTHING: tuple[Action, ...] = ()
_LACKS_NOTHING: Mapping[str, Collection[Endpoint]] = {}
_RETRY_IN_PLACE = ("connect", "broken")
_LOST = ("broken", "timeout")
_BUSY_RETRY_S = 1.0
_LOST_MAX = 2
"""Attempts of one request that end so. It may be the request itself that breaks engines: what two
of them did not survive must not reach all."""


class _Flight(msgspec.Struct, gc=False):
    """A request in flight, and the attempt under way. (gc=False: it is never part of a cycle.)"""

    request: Request
    route: Route
    replica: Replica
    work: float
    started_s: float
    ticket: int
    tried: int
    attempts: int = 1
    lost: int = 0


class Controller:
    """Decides where every request goes, and what happens when that fails.

    Pure: what it decides depends on nothing but its configuration, the seed of `random`, and the
    events with their times. `now_s` is monotonic; that an event is told a little late, with the
    time of its own, does no harm. `lacks` tells by name which endpoints a replica does not have:
    requests for those go to others only.

    Of each request it wants Arrived, then FirstToken (where there was one) and exactly one of
    Finished, Cancelled or a Failed that is not retryable; a retryable Failed is answered with the
    next Dispatch or with Reject, which also ends the request. Past `in_flight_max` requests the
    oldest is forgotten (`forgotten` counts them): it goes on at its replica, but cannot fail over.
    Events about replicas that are not configured, and late ones about requests that have ended,
    are counted in `ignored`.
    """

    def __init__(
        self,
        replicas: Iterable[str],
        *,
        config: ControlConfig,
        random: Random,
        lacks: Mapping[str, Collection[Endpoint]] = _LACKS_NOTHING,
        in_flight_max: int = 100_000,
    ) -> None:
        require_at_least("in_flight_max", in_flight_max, 1)
        routing = config.routing
        self._replicas = Replicas(replicas, routing, config.breaker, lacks)
        self._routes = self._replicas.routes
        self._router = Router(routing, random)
        self._flights: dict[int, _Flight] = {}
        self._attempts_max = routing.attempts_max
        self._in_flight_max = in_flight_max
        self._wake_s = math.inf
        self.ignored = 0
        self.forgotten = 0

    @property
    def in_flight(self) -> int:
        """Requests dispatched and not ended."""
        return len(self._flights)

    def replica_states(self) -> tuple[ReplicaState, ...]:
        """Every configured replica, in the order of the configuration."""
        return tuple(replica.state() for replica in self._replicas)

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        """What to do about the event, in this order; mostly nothing."""
        # The three of every request come first: a chain of tests is the fastest dispatch for them.
        if isinstance(event, Arrived):
            return self._arrived(event.request, now_s)
        if isinstance(event, FirstToken):
            return self._first_token(event.request_id)
        if isinstance(event, Finished):
            return self._finished(event, now_s)
        if isinstance(event, Failed):
            return self._failed(event, now_s)
        if isinstance(event, Cancelled):
            return self._cancelled(event.request_id, now_s)
        if isinstance(event, Woke):
            return self._woke(now_s)
        if isinstance(event, Observed | ReplicaUp | ReplicaDown):
            self._replica_event(event, now_s)
        return _NOTHING

    def _arrived(self, request: Request, now_s: float) -> Sequence[Action]:
        replicas = self._replicas
        if now_s >= replicas.half_open_due_s:
            replicas.tick(now_s)
        route = self._routes.get(request.model)
        if route is None:
            reason: RejectReason = "model_not_found" if replicas.seen_up else "no_replica"
            return (Reject(request.id, reason),)
        takers: Takers = route
        if route.partial:
            takers = route.partial.get(request.endpoint, route)
        work = _work(request, route)
        if takers.half_open:
            # The probe goes at once, not when chance picks it: its capacity may be needed.
            replica = takers.half_open[0]
        elif takers.closed.loads:
            replica = self._router.choose(takers.closed, work, request.prefix_key, now_s)
        elif takers.serving:
            return (Reject(request.id, "no_replica", takers.retry_after_s(now_s)),)
        else:
            return (Reject(request.id, "endpoint_not_supported"),)
        flights = self._flights
        if request.id in flights or len(flights) >= self._in_flight_max:
            self._make_room(request.id, now_s)
        ticket = replicas.admit(replica)
        flights[request.id] = _Flight(request, route, replica, work, now_s, ticket, replica.bit)
        replica.started(work, now_s)
        return (Dispatch(request.id, replica.name),)

    def _make_room(self, request_id: int, now_s: float) -> None:
        """Forget the oldest request, or the one whose id is used again."""
        if request_id not in self._flights:
            request_id = next(iter(self._flights))
        self.forgotten += 1
        self._cancelled(request_id, now_s)

    def _first_token(self, request_id: int) -> Sequence[Action]:
        flight = self._flights.get(request_id)
        if flight is None:
            self.ignored += 1
        elif flight.replica.breaker.failures and flight.replica.breaker.first_token(flight.ticket):
            self._replicas.refresh(flight.replica)
        return _NOTHING

    def _finished(self, event: Finished, now_s: float) -> Sequence[Action]:
        flight = self._flights.pop(event.request_id, None)
        if flight is None:
            self.ignored += 1
            return _NOTHING
        replica, request, output_tokens = flight.replica, flight.request, event.output_tokens
        if output_tokens is None and request.endpoint == "embeddings" and event.prompt_tokens:
            output_tokens = 0
        if output_tokens is None or output_tokens < 0:
            # Perhaps an error of the client's own, answered at once: no measure of speed.
            replica.ended(flight.work, now_s)
        else:
            prompt_tokens = request.prompt_tokens_estimate
            replica.finished(flight.work, prompt_tokens, output_tokens, flight.started_s, now_s)
            flight.route.answered(output_tokens)
        if replica.breaker.failures and replica.breaker.succeeded(flight.ticket):
            self._replicas.refresh(replica)
        return _NOTHING

    def _cancelled(self, request_id: int, now_s: float) -> Sequence[Action]:
        flight = self._flights.pop(request_id, None)
        if flight is None:
            self.ignored += 1
            return _NOTHING
        flight.replica.ended(flight.work, now_s)
        if flight.replica.breaker.released(flight.ticket):
            self._replicas.refresh(flight.replica)
        return _NOTHING

    def _failed(self, event: Failed, now_s: float) -> Sequence[Action]:
        request_id = event.request_id
        flight = self._flights.get(request_id)
        if flight is None or flight.replica.name != event.replica:
            self.ignored += 1
            if flight is None and event.retryable:
                # Its client still waits: no request may hang because it was forgotten.
                return (Reject(request_id, "upstream_failed"),)
            return _NOTHING
        replica = flight.replica
        replica.ended(flight.work, now_s)
        wake = _NOTHING
        if event.kind == "busy":
            if replica.breaker.released(flight.ticket):
                self._replicas.refresh(replica)
        else:
            replica.failure = event.kind
            if replica.breaker.failed(flight.ticket, now_s):
                self._replicas.refresh(replica)
                wake = self._wake_at(now_s)
        if not event.retryable:
            del self._flights[request_id]
            return wake
        # Looked up anew: since the request came, its model may have gone, and come back elsewhere.
        route = self._routes.get(flight.request.model)
        takers = None if route is None else route.partial.get(flight.request.endpoint, route)
        following = None if takers is None else self._next_replica(flight, takers, event, now_s)
        if following is None:
            del self._flights[request_id]
            if event.kind == "busy":
                return (Reject(request_id, "busy", _BUSY_RETRY_S),)
            retry_after_s = None if takers is None else takers.retry_after_s(now_s)
            return (Reject(request_id, "upstream_failed", retry_after_s), *wake)
        flight.replica, flight.started_s = following, now_s
        flight.ticket = self._replicas.admit(following)
        flight.tried |= following.bit
        flight.attempts += 1
        following.started(flight.work, now_s)
        return (Dispatch(request_id, following.name), *wake)

    def _next_replica(
        self, flight: _Flight, takers: Takers, event: Failed, now_s: float
    ) -> Replica | None:
        """Where a failed request is tried next: a replica that it has not tried; else None.

        Where there is only the one that failed, a lost connection is tried again on it. A timeout
        or an engine's own error is not: it would cost the same again. Neither is one where all our
        connections are in use: they are a moment later as well.
        """
        if event.kind in _LOST:
            flight.lost += 1
        if flight.attempts >= self._attempts_max or flight.lost >= _LOST_MAX:
            return None
        if now_s >= self._replicas.half_open_due_s:
            self._replicas.tick(now_s)
        tried = flight.tried
        untried = [replica for replica in takers.closed.loads if not replica.bit & tried]
        if untried:
            candidates = Candidates(untried)
            return self._router.choose(candidates, flight.work, flight.request.prefix_key, now_s)
        for replica in takers.half_open:
            if not replica.bit & tried:
                return replica
        if event.kind in _RETRY_IN_PLACE and takers.closed.loads == (flight.replica,):
            return flight.replica
        return None

    def _woke(self, now_s: float) -> Sequence[Action]:
        self._wake_s = math.inf
        if now_s >= self._replicas.half_open_due_s:
            self._replicas.tick(now_s)
        return self._wake_at(now_s)

    def _wake_at(self, now_s: float) -> tuple[Action, ...]:
        """Ask to be woken when the next breaker becomes half-open, unless that was asked before."""
        due_s = self._replicas.half_open_due_s
        if due_s == math.inf or now_s < self._wake_s <= due_s:
            return _NOTHING
        self._wake_s = due_s
        return (WakeAt(due_s),)

    def _replica_event(self, event: Observed | ReplicaUp | ReplicaDown, now_s: float) -> None:
        name = event.view.replica if isinstance(event, Observed) else event.replica
        replica = self._replicas.get(name)
        if replica is None:
            self.ignored += 1
        elif isinstance(event, Observed):
            replica.observed(event.view, now_s)
        elif isinstance(event, ReplicaUp):
            self._replicas.up(replica, event.models)
        else:
            self._replicas.down(replica, event.reason)


def _work(request: Request, route: Route) -> float:
    """Work to expect of the request."""
    output_tokens, bound = route.output_tokens, request.output_tokens_max
    if bound is not None and bound < output_tokens:
        output_tokens = bound
    if request.endpoint == "embeddings":
        output_tokens = 0.0
    return work_of(request.prompt_tokens_estimate, output_tokens)
