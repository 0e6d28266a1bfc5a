"""Controller: events and the time come in, actions go out; composes the policies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random

import msgspec

from mileage.control.config import ControlConfig, config_of
from mileage.control.dispatcher import Dispatcher
from mileage.control.experiment import ArmSeen, changed
from mileage.control.failover import blame, next_replica
from mileage.control.governor import Governor
from mileage.control.intake import Intake
from mileage.control.plausible import TOKENS_MAX, plausible
from mileage.control.replicas import Replicas, ReplicaState, Takers
from mileage.control.spend import Spend
from mileage.core.actions import Action, Reject, RejectReason
from mileage.core.bounds import require_at_least
from mileage.core.errors import MileageError
from mileage.core.events import (
    Arrived,
    BudgetGranted,
    BudgetRecalled,
    Cancelled,
    ConfigChanged,
    Event,
    ExperimentChanged,
    Failed,
    Finished,
    FirstToken,
    Loadable,
    LoadFailed,
    Observed,
    OthersSeen,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
    Woke,
)
from mileage.core.request import Endpoint, Request

__all__ = ["Controller"]

_NOTHING: tuple[Action, ...] = ()
_LACKS_NOTHING: Mapping[str, Collection[Endpoint]] = {}
_BUSY_RETRY_S = 1.0


class Controller:
    """Decides where and when every request goes, and what happens when that fails.

    Pure: what it decides depends on nothing but its configuration, the seed of `random`, and the
    events with their times. `now_s` is monotonic; that an event is told a little late, with the
    time of its own, does no harm. `lacks` tells by name which endpoints a replica does not have:
    requests for those go to others only.

    Of each request it wants Arrived; once that was answered with Dispatch, FirstToken (where there
    was one) and exactly one of Finished, Cancelled or a Failed that is not retryable; a retryable
    Failed is answered with the next Dispatch or with Reject, which also ends the request. A request
    that joined another is spoken of no more, but for its Cancelled. Past `in_flight_max` requests
    the oldest is forgotten (`forgotten` counts them): it goes on at its replica, but cannot fail
    over. Events about replicas that are not configured, and late ones about requests that have
    ended, are counted in `ignored`.

    Should a part of it raise, it fails open: `failure` says what it was, all that was held is sent,
    and from then on requests are only routed, until a ConfigChanged makes it try again.
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
        self._replicas = Replicas(replicas, config, lacks)
        self._routes = self._replicas.routes
        dispatcher = self._dispatcher = Dispatcher(config, self._replicas, random)
        self._flights, self._told = dispatcher.flights, dispatcher.told
        self._in_flight_max, self._random = in_flight_max, random
        self.loads, self.experiment = dispatcher.loads, dispatcher.experiment
        self.version = 1
        self.failure: str | None = None
        self.ignored = 0
        self.forgotten = 0

    @property
    def in_flight(self) -> int:
        """Requests taken on and not ended, those that are held included."""
        return len(self._flights)

    @property
    def governor(self) -> Governor:
        """What is held, and what was decided so far."""
        return self._dispatcher.governor

    @property
    def intake(self) -> Intake:
        """What the tenants use."""
        return self._dispatcher.intake

    def spend_of(self, request_id: int) -> Spend | None:
        """What a request cost that has just ended; told once, None where that is not known."""
        return self._dispatcher.intake.take_spend(request_id)

    def arm_of(self, request: Request) -> ArmSeen | None:
        """The arm of a request that is about to come; None: it is in no experiment."""
        found = self._replicas.find(request)
        if self.experiment is None or found is None:
            return None
        return self.experiment.seen(request, found[1])

    def replica_states(self) -> tuple[ReplicaState, ...]:
        """Every configured replica, in the order of the configuration."""
        return tuple(replica.state() for replica in self._replicas)

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        """What to do about the event, in this order; mostly nothing."""
        told = self._told
        if told:
            told.clear()
        try:
            # The three of every request come first: a chain of tests is the fastest for them.
            if isinstance(event, Arrived):
                return self._arrived(event.request, now_s)
            if isinstance(event, FirstToken):
                return self._first_token(event.request_id, now_s)
            if isinstance(event, Finished):
                return self._finished(event, now_s)
            return self._handle(event, now_s)
        except Exception as error:
            return self._fail_open(event, now_s, error)

    def _handle(self, event: Event, now_s: float) -> Sequence[Action]:
        if isinstance(event, Failed):
            return self._failed(event, now_s)
        if isinstance(event, Cancelled):
            return self._cancelled(event.request_id, now_s, event.output_tokens)
        if isinstance(event, Woke):
            self._dispatcher.alarm.rang()
            if now_s >= self._replicas.half_open_due_s:
                self._replicas.tick(now_s)
        elif isinstance(event, Observed):
            self._observed(event, now_s)
            if now_s < self._dispatcher.governor.due_s:
                return _NOTHING  # it tells of no room by itself: limits are decided in time
        elif isinstance(event, ReplicaUp | ReplicaDown):
            self._replica_event(event, now_s)
        elif isinstance(event, Loadable | LoadFailed):
            self.ignored += not self._dispatcher.loads.told(event, now_s)
        elif isinstance(event, ConfigChanged):
            return self._configure(event, now_s)
        elif isinstance(event, ExperimentChanged):
            self._split(event.settings, now_s)
        elif isinstance(event, ShareChanged):
            self._dispatcher.governor.share(event.ratio)
            self._dispatcher.intake.share(event.ratio, now_s)
        elif isinstance(event, OthersSeen):
            self._replicas.others_seen(dict(event.weights), now_s)
            return _NOTHING
        elif isinstance(event, BudgetGranted | BudgetRecalled):
            self._dispatcher.intake.budget_event(event, now_s)
        return self._dispatcher.go_on(now_s)

    # --- arrivals -----------------------------------------------------------------------------

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
        if not (takers.half_open or takers.closed.loads or takers.loadable):
            if takers.serving:
                return (Reject(request.id, "no_replica", takers.retry_after_s(now_s)),)
            return (Reject(request.id, "endpoint_not_supported"),)
        if request.id in self._flights or len(self._flights) >= self._in_flight_max:
            actions = self._make_room(request.id, now_s)
            return (*actions, *self._dispatcher.arrived(request, route, takers, now_s))
        return self._dispatcher.arrived(request, route, takers, now_s)

    def _make_room(self, request_id: int, now_s: float) -> Sequence[Action]:
        """Forget the oldest request, or the one whose id is used again; what that brings about.

        One that runs nowhere would wait for ever: it is refused.
        """
        flights = self._flights
        self.forgotten += 1
        if request_id not in flights:
            request_id = next(iter(flights))
            if flights[request_id].replica is None:
                detail = f"{len(flights)} requests are in the gateway already"
                refusal = Reject(request_id, "queue_full", _BUSY_RETRY_S, detail)
                return (self._dispatcher.refuse(flights[request_id], refusal, now_s),)
        actions: list[Action] = []
        for member in self._dispatcher.merges.members(request_id):
            actions += self._cancelled(member, now_s)
        return actions

    # --- while it runs ------------------------------------------------------------------------

    def _first_token(self, request_id: int, now_s: float) -> Sequence[Action]:
        flight = self._flights.get(request_id)
        if flight is None or flight.replica is None:
            self.ignored += 1
            return _NOTHING
        replica = flight.replica
        if replica.breaker.failures and replica.breaker.first_token(flight.ticket):
            self._replicas.refresh(replica)
        throttle = replica.throttle
        throttle.first_token(flight, now_s)
        if self._dispatcher.governor.held and throttle.prefill_tokens_max is not None:
            return self._dispatcher.pumped(replica, now_s)
        return _NOTHING

    def _finished(self, event: Finished, now_s: float) -> Sequence[Action]:
        flight = self._flights.get(event.request_id)
        if flight is None or flight.replica is None:
            self.ignored += 1
            return _NOTHING
        del self._flights[event.request_id]
        replica, request, dispatcher = flight.replica, flight.request, self._dispatcher
        if (event.output_tokens or 0) > TOKENS_MAX or (event.prompt_tokens or 0) > TOKENS_MAX:
            event = plausible(event, request)
        output_tokens = event.output_tokens
        if output_tokens is None and request.endpoint == "embeddings" and event.prompt_tokens:
            output_tokens = 0
        cost = flight.cost
        if output_tokens is None or output_tokens < 0:
            # Perhaps an error of the client's own, answered at once: no measure of speed.
            replica.ended(flight.sent_work, now_s)
            dispatcher.ended(flight, replica, cost, now_s)
        else:
            prompt_tokens = flight.prompt_tokens
            work, started_s = flight.sent_work, flight.started_s
            replica.finished(work, prompt_tokens, output_tokens, started_s, now_s)
            flight.answered(replica, event.cached_tokens)
            flight.route.answered(output_tokens)
            if request.batch_key is None:
                cost = flight.pool.cost_of(prompt_tokens, output_tokens)
            replica.throttle.done += cost
            dispatcher.ended(flight, replica, cost, now_s, event)
        members: Sequence[int] = (request.id,)
        if request.merge_key is not None or request.batch_key is not None:
            members = dispatcher.merges.ended(request.id)
        dispatcher.intake.settle(members, flight, event, now_s)
        if replica.breaker.failures and replica.breaker.succeeded(flight.ticket):
            self._replicas.refresh(replica)
        return dispatcher.pumped(replica, now_s)

    def _cancelled(
        self, request_id: int, now_s: float, output_tokens: int | None = None
    ) -> Sequence[Action]:
        leader_id = self._dispatcher.merges.leader_of(request_id)
        flight = self._flights.get(leader_id)
        if flight is None:
            self.ignored += 1
            return _NOTHING
        if not self._dispatcher.merges.leave(request_id):
            # Others wait for the same answer, or the same call.
            self._dispatcher.left(flight, request_id)
            self._dispatcher.intake.release((request_id,), now_s)
            return _NOTHING
        replica = flight.replica
        if replica is None:
            self._dispatcher.forget(flight, now_s)
            self._dispatcher.intake.release((request_id,), now_s)
            return self._dispatcher.go_on(now_s)
        del self._flights[leader_id]
        self._dispatcher.leave(flight, replica, now_s)
        self._dispatcher.intake.settle((request_id,), flight, None, now_s, seen=output_tokens)
        if replica.breaker.released(flight.ticket):
            self._replicas.refresh(replica)
        return self._dispatcher.pumped(replica, now_s)

    def _failed(self, event: Failed, now_s: float) -> Sequence[Action]:
        request_id = event.request_id
        flight = self._flights.get(request_id)
        replica = flight.replica if flight is not None else None
        if flight is None or replica is None or replica.name != event.replica:
            self.ignored += 1
            if flight is None and event.retryable:
                # Its client still waits: no request may hang because it was forgotten.
                return (Reject(request_id, "upstream_failed"),)
            return _NOTHING
        self._dispatcher.leave(flight, replica, now_s)
        blame(flight, replica, event, self._replicas, now_s)
        # Looked up anew: since the request came, its model may have gone, and come back elsewhere.
        found = self._replicas.find(flight.request)
        takers = None if found is None else found[1]
        following = None
        if takers is not None and event.retryable:
            following = next_replica(
                flight,
                takers,
                event,
                now_s,
                attempts_max=self._dispatcher.config.routing.attempts_max,
                replicas=self._replicas,
                router=self._dispatcher.router_of(flight),
            )
        if following is not None:
            flight.takers = takers or flight.takers
            return (self._dispatcher.send(flight, following, now_s), *self._dispatcher.go_on(now_s))
        if event.kind == "unloaded" and event.retryable:
            held = self._dispatcher.hold_again(flight, now_s)
            if held is not None:
                return (*held, *self._dispatcher.go_on(now_s))
        del self._flights[request_id]
        members = self._dispatcher.merges.ended(request_id)
        if not event.retryable:
            # Part of the answer has gone out.
            self._dispatcher.intake.settle(members, flight, None, now_s)
            return self._dispatcher.go_on(now_s)
        self._dispatcher.intake.release(members, now_s)
        if event.kind in ("busy", "unloaded"):
            refusal = Reject(request_id, "busy", _BUSY_RETRY_S)
        else:
            retry_after_s = None if takers is None else takers.retry_after_s(now_s)
            refusal = Reject(request_id, "upstream_failed", retry_after_s)
        self._told.append(refusal)
        return (refusal, *self._dispatcher.go_on(now_s))

    # --- everything else ----------------------------------------------------------------------

    def _observed(self, event: Observed, now_s: float) -> None:
        replica = self._replicas.get(event.view.replica)
        if replica is None:
            self.ignored += 1
            return
        replica.observed(event.view, now_s)
        replica.throttle.observed(event.view)

    def _replica_event(self, event: ReplicaUp | ReplicaDown, now_s: float) -> None:
        replica = self._replicas.get(event.replica)
        if replica is None:
            self.ignored += 1
        elif isinstance(event, ReplicaUp):
            self._replicas.up(replica, event.models)
            if self.experiment is not None:
                self.experiment.forget(replica.name)
            self._dispatcher.governor.due_s = now_s  # its limit is decided before it is used
        else:
            self._replicas.down(replica, event.reason)

    def _split(self, settings: str, now_s: float) -> None:
        """Split the traffic by other settings; those that are none are ignored."""
        dispatcher, replicas = self._dispatcher, self._replicas
        try:
            self.experiment = dispatcher.experiment = changed(
                self.experiment, settings, dispatcher.config, replicas, self._random, now_s
            )
        except (msgspec.DecodeError, MileageError):
            self.ignored += 1
        dispatcher.governor.due_s = now_s  # limits are decided before they are used

    def _configure(self, event: ConfigChanged, now_s: float) -> Sequence[Action]:
        """Take on another configuration; a document that is none is ignored, and the old stays."""
        config = config_of(event.settings)
        if config is None:
            self.ignored += 1
            return _NOTHING
        self.version, self.failure = event.version, None
        self._replicas.reconfigure(config, now_s)
        self._dispatcher.reconfigure(config, now_s)
        return self._dispatcher.go_on(now_s)

    def _fail_open(self, event: Event, now_s: float, error: Exception) -> Sequence[Action]:
        """Let everything through from now on: no limits, no queue, no tenants' limits, no merging.

        Raises what a request raises that cannot even be routed; its host has to answer it.
        """
        self.failure = f"{type(error).__name__}: {error}"
        actions = [*self._told]
        actions += self._dispatcher.open_up(now_s)
        if isinstance(event, Arrived) and event.request.id not in self._flights:
            actions += self._arrived(event.request, now_s)
        elif (
            isinstance(event, Failed)
            and event.retryable
            and all(getattr(each, "request_id", None) != event.request_id for each in actions)
        ):
            # Its client still waits, and whether it was tried again is not known.
            self._dispatcher.give_up(event.request_id, now_s)
            actions.append(Reject(event.request_id, "upstream_failed"))
        return actions
