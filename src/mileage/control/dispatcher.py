"""Dispatcher: sends requests to replicas, holds them, or lets them go with others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

from mileage.control.alarm import Alarm
from mileage.control.company import collect, collected
from mileage.control.config import ControlConfig
from mileage.control.experiment import Experiment
from mileage.control.flight import Flight, make_flight
from mileage.control.governor import Governor
from mileage.control.gpu_meter import weight_of
from mileage.control.intake import Intake
from mileage.control.loads import Loads
from mileage.control.replica import Replica
from mileage.control.replicas import Replicas, Route, Takers
from mileage.control.unfunded import Unfunded
from mileage.core.actions import Action, Dispatch, Hold, Join, Reject
from mileage.core.events import Finished
from mileage.core.request import Request
from mileage.policy.batching import BatchWindow
from mileage.policy.merging import MergeIndex
from mileage.policy.routing import Router

__all__ = ["Dispatcher"]

_NOTHING: tuple[Action, ...] = ()
_UNFUNDED_MAX = 10_000
"""Of one tenant."""


class Dispatcher:
    """Owns the requests that were taken on, from their arrival to their end.

    A request is in one of five places: at a replica; in the governor's queue; collecting company
    for one upstream call; unfunded, until its tenant's budget has room for it; or held until its
    model is loaded.
    """

    def __init__(self, config: ControlConfig, replicas: Replicas, random: Random) -> None:
        self.config = config
        self.mode = config.governor.mode
        self.replicas = replicas
        self.router = Router(config.routing, random)
        self.governor = Governor(config, replicas)
        self.loads = Loads(config.loads, replicas)
        self.merges = MergeIndex(config.merging)
        self.batches = BatchWindow(config.merging)
        self.intake = Intake(config)
        self.flights: dict[int, Flight] = {}
        self.experiment: Experiment | None = None
        self._unfunded = Unfunded()
        self.alarm = Alarm()
        self._merging = True
        self.told: list[Action] = []
        """What became of requests since this was last cleared: not to be lost if a part raises."""

    def reconfigure(self, config: ControlConfig, now_s: float) -> None:
        """Decide by this from now on; requests keep the targets that they came with."""
        self.config, self.mode = config, config.governor.mode
        self._merging = True
        self.router.reconfigure(config.routing)
        self.governor.reconfigure(config)
        self.merges.config = self.batches.config = config.merging
        self.loads.reconfigure(config.loads)
        self.intake.reconfigure(config, now_s)
        if self.experiment is not None:
            self.experiment.reconfigure(config)

    def open_up(self, now_s: float) -> Sequence[Action]:
        """Only route from now on, and send all that is held."""
        self.mode, self._merging = "off", False
        self.intake.open_up()
        self.governor.due_s = math.inf
        return self._release(list(self.flights.values()), now_s)

    def arrived(
        self, request: Request, route: Route, takers: Takers, now_s: float
    ) -> Sequence[Action]:
        """Take on a request that `takers` can serve: send, join, hold or refuse it."""
        arm, experiment = None, self.experiment
        if experiment is not None:
            request, takers, arm = experiment.assign(request, takers)
        pool = takers.pool or self.governor.pool(takers)
        flight = make_flight(request, route, takers, pool, self.config, arm)
        if self.intake.limits:
            refusal = self._refusal(flight, now_s)
            if refusal is not None:
                return (refusal,)
        ticked = self._tick(now_s) if now_s >= self.governor.due_s else _NOTHING
        observing = self.mode == "observe"
        if request.merge_key is not None and not flight.unfunded and self._merging:
            merges = self.merges
            leader_id = merges.find(request)
            if leader_id is not None and leader_id in self.flights:
                if not observing:
                    merges.join(request.id, leader_id)
                    return (*ticked, Join(request.id, leader_id, "same"))
                self.governor.would_merge_total += 1
            merges.lead(request)
        self.flights[request.id] = flight
        if flight.unfunded:
            self._unfunded.add(flight)
            return (*ticked, Hold(request.id), *self.intake.take_actions(), *self.wake(now_s))
        if request.batch_key is not None and not observing and self._merging:
            actions = collect(self, flight, now_s)
        else:
            actions = self.place(flight, now_s)
        return (*ticked, *actions) if ticked else actions

    def _refusal(self, flight: Flight, now_s: float) -> Reject | None:
        """Hold the request to the limits of its tenant, or count what they would have done."""
        tenant = flight.request.tenant
        refusal = self.intake.admit(flight, now_s)
        if self.mode == "observe":
            flight.counted = self.governor.would(refusal, held=flight.unfunded)
            flight.unfunded = False
            return None
        if flight.unfunded and self._unfunded.count(tenant) >= _UNFUNDED_MAX:
            refusal = self.intake.unfunded(flight)
            self.intake.release((flight.request.id,), now_s)
        if refusal is not None:
            self.governor.refused(refusal, tenant, now_s)
        return refusal

    def place(self, flight: Flight, now_s: float) -> Sequence[Action]:
        """Send the request, hold it, or refuse it."""
        takers = flight.takers
        if not (takers.closed.loads or takers.half_open):
            takers = self._find(flight)
        if takers.half_open:
            # The probe goes at once, not when chance picks it: its capacity may be needed.
            return (self.send(flight, takers.half_open[0], now_s),)
        candidates = takers.closed
        if not candidates.loads:
            held = self.loads.hold(flight, takers, now_s)
            if isinstance(held, Reject):
                return (self.refuse(flight, held, now_s),)
            return (*held, *self.wake(now_s))
        router = self.router if flight.arm is None else self.router_of(flight)
        replica = flight.choose(router, candidates, now_s)
        throttle = replica.throttle
        throttle.arrivals += 1
        if self.mode == "act":
            # Mostly nothing is held and there is room: then there is nothing to decide.
            tokens = flight.prompt_tokens
            if (
                self.governor.held
                or throttle.prefill_tokens + tokens > throttle.calm_tokens
                or not throttle.has_room(tokens)
            ):
                return self._govern(flight, replica, now_s)
        elif self.mode == "observe" and not flight.counted:
            self.governor.observe(flight, replica, now_s)
        return (self.send(flight, replica, now_s),)

    def _govern(self, flight: Flight, replica: Replica, now_s: float) -> Sequence[Action]:
        """What the governor decides: send it, there or elsewhere, hold it or refuse it, or refuse
        another one."""
        request, governor = flight.request, self.governor
        crowded: Sequence[Action] = _NOTHING
        found = governor.place(flight, replica, self.intake, now_s)
        if isinstance(found, Reject) and found.reason == "queue_full":
            other = governor.least_urgent(flight)
            if other is not None:
                crowded = (self.refuse(other, governor.full(other), now_s),)
                found = governor.place(flight, replica, self.intake, now_s)
        if found is None:
            # While it waits for a slot, others may join it in one call all the same; not so what
            # was sent before, and waits again.
            if not flight.attempts:
                self.batches.open(request)
            return (*crowded, Hold(request.id), *self.wake(now_s))
        if isinstance(found, Reject):
            return (*crowded, self.refuse(flight, found, now_s))
        return (*crowded, self.send(flight, found, now_s))

    def router_of(self, flight: Flight) -> Router:
        """What routes the request: that of its arm, where there is an experiment."""
        return (
            self.router if self.experiment is None else self.experiment.router(flight, self.router)
        )

    def hold_again(self, flight: Flight, now_s: float) -> Sequence[Action] | None:
        """Hold a request that came back because its replica has not the adapter any more, until it
        is loaded again. None: it was tried often enough, or cannot be held."""
        if flight.attempts >= self.config.routing.attempts_max:
            return None
        held = self.loads.hold(flight, flight.takers, now_s)
        if isinstance(held, Reject):
            return None
        flight.replica, flight.tried = None, 0
        return held

    def _find(self, flight: Flight) -> Takers:
        """Look up anew who serves the request: its model may have come back; or its arm is gone."""
        found = self.replicas.find(flight.request)
        if found is not None and found[1].serving:
            flight.route, takers = found
            flight.takers = takers.own_or_all(flight.arm)
            flight.pool = self.governor.pool(takers)
        return flight.takers

    def send(self, flight: Flight, replica: Replica, now_s: float) -> Dispatch:
        """Send the request to the replica."""
        breaker = replica.breaker
        flight.ticket = (
            breaker.ticket if breaker.state == "closed" else self.replicas.probe(replica)
        )
        flight.replica, flight.started_s = replica, now_s
        flight.tried |= replica.bit
        flight.attempts += 1
        work = flight.sent(replica, now_s)
        replica.sent += 1
        replica.started(work, now_s)
        replica.throttle.started(flight, now_s)
        flight.gpu_weight = weight = weight_of(work)
        flight.gpu_mark = replica.meter.start(weight, now_s)
        if flight.request.batch_key is not None:
            self.batches.close(flight.request.id)
        dispatch = Dispatch(flight.request.id, replica.name)
        self.told.append(dispatch)
        return dispatch

    def refuse(self, flight: Flight, refusal: Reject, now_s: float) -> Reject:
        """End a request that runs nowhere, and all that joined it, with a refusal."""
        self.governor.refused(refusal, flight.request.tenant, now_s)
        self.forget(flight, now_s)
        self.told.append(refusal)
        return refusal

    def left(self, flight: Flight, request_id: int) -> None:
        """One of those that joined a request has left. Of a call that is not sent it is no part."""
        if flight.replica is None and (other := flight.drop(request_id)) is not None:
            self.batches.left(flight.request.id, other.request.batch_items)

    def give_up(self, request_id: int, now_s: float) -> None:
        """A request ends whose replica has it no more, with all that joined it."""
        self.flights.pop(request_id, None)
        self.intake.release(self.merges.ended(request_id), now_s)

    def forget(self, flight: Flight, now_s: float) -> None:
        """A request that runs nowhere ends, with all that joined it."""
        request = flight.request
        del self.flights[request.id]
        if flight.queue is not None:
            self.governor.release(flight, now_s)
        if request.batch_key is not None:
            self.batches.close(request.id)
        self._unfunded.remove(flight)
        self.loads.remove(flight, now_s)
        self.intake.release(self.merges.ended(request.id), now_s)

    def leave(self, flight: Flight, replica: Replica, now_s: float) -> None:
        """The request's attempt is at the replica no longer; it teaches nothing."""
        replica.ended(flight.sent_work, now_s)
        self.ended(flight, replica, flight.cost, now_s)

    def ended(
        self,
        flight: Flight,
        replica: Replica,
        cost: float,
        now_s: float,
        answer: Finished | None = None,
    ) -> None:
        """The request's attempt is at the replica no longer, and was so much work; `answer`: where
        it was answered well."""
        replica.throttle.ended(flight, now_s, answer)
        flight.gpu_ns += replica.meter.end(flight.gpu_weight, flight.gpu_mark, now_s)
        if flight.charged:
            self.governor.corrected(flight, cost)

    # --- what waits ---------------------------------------------------------------------------

    def pumped(self, replica: Replica, now_s: float) -> Sequence[Action]:
        """Send what is held to a replica that may have room now."""
        if not self.governor.held:
            return self._funded(now_s) if self._unfunded.total else _NOTHING
        actions: list[Action] = []
        for found in self.governor.pump(replica, now_s):
            if isinstance(found, Reject):
                flight = self.flights[found.request_id]
                actions.append(self.refuse(flight, found, now_s))
            else:
                actions.append(self.send(found, replica, now_s))
        if self._unfunded:
            actions += self._funded(now_s)
        return actions

    def go_on(self, now_s: float) -> Sequence[Action]:
        """Do all that has become due, or possible: after anything but a request's own events."""
        actions: list[Action] = []
        if self.experiment is not None and self.experiment.turn(now_s):
            self.governor.due_s = min(self.governor.due_s, now_s)
        for leader_id in self.batches.due(now_s):
            actions += collected(self, leader_id, now_s)
        if now_s >= self.governor.due_s:
            actions += self._tick(now_s)
        if self.governor.held:
            if self.mode == "act":
                for replica in self.replicas:
                    actions += self.pumped(replica, now_s)
                actions += self._expired(now_s)
                for flight in self.governor.probes():
                    self.governor.release(flight, now_s)
                    actions += self.place(flight, now_s)
            else:
                held = [flight for flight in self.flights.values() if flight.queue is not None]
                actions += self._release(held, now_s)
        if self.loads.total:
            actions += self._settle(self.loads.ready(now_s), now_s)
        if self._unfunded and self.mode == "observe":
            actions += self._release([f for f in self.flights.values() if f.unfunded], now_s)
        elif self._unfunded:
            actions += self._funded(now_s)
        actions += self.intake.take_actions()
        actions += self.wake(now_s)
        return tuple(actions)

    def _tick(self, now_s: float) -> Sequence[Action]:
        """Decide the limits anew, and use what a higher one gives."""
        if self.mode == "off":
            self.governor.due_s = math.inf
            return _NOTHING
        actions: list[Action] = list(self.governor.tick(now_s))
        if self.governor.held and self.mode == "act":
            for replica in self.replicas:
                actions += self.pumped(replica, now_s)
            actions += self._expired(now_s)
            actions += self.wake(now_s)
        return actions

    def _expired(self, now_s: float) -> list[Action]:
        """Refuse what is held and cannot be served in time, or at all, any more."""
        actions: list[Action] = []
        for flight in self.governor.expired(now_s):
            takers = flight.takers
            if takers.closed.loads or takers.half_open:
                refusal = self.governor.late(flight, now_s)
            elif flight.arm is not None or self.loads.can(flight):
                actions += self._release((flight,), now_s)  # to the other arm, or until it is back
                continue
            else:
                refusal = Reject(flight.request.id, "no_replica", takers.retry_after_s(now_s))
            actions.append(self.refuse(flight, refusal, now_s))
        return actions

    def _release(self, flights: Iterable[Flight], now_s: float) -> list[Action]:
        """Send what of these is held, whatever the limits: they hold no longer."""
        actions: list[Action] = []
        for flight in flights:
            if flight.replica is not None:
                continue
            if flight.queue is not None:
                self.governor.release(flight, now_s)
            flight.collecting = flight.unfunded = False
            self._unfunded.remove(flight)
            self.loads.remove(flight, now_s)
            actions += self.place(flight, now_s)
        return actions

    def _funded(self, now_s: float) -> list[Action]:
        """Try the requests again that wait for their tenant's budget."""
        actions = self._settle(self._unfunded.funded(self.intake, now_s), now_s)
        return [*actions, *self.intake.take_actions()]

    def _settle(self, found: Iterable[tuple[Flight, Reject | None]], now_s: float) -> list[Action]:
        """Place or refuse what waits for its budget, or its model, no longer."""
        actions: list[Action] = []
        for flight, refusal in found:
            if refusal is None:
                self._find(flight)
                actions += self.place(flight, now_s)
            else:
                actions.append(self.refuse(flight, refusal, now_s))
        return actions

    def wake(self, now_s: float) -> tuple[Action, ...]:
        """Ask to be woken when something is next due, unless that was asked before."""
        due_s = min(self.replicas.half_open_due_s, self.batches.next_due_s, self.loads.due_s)
        if self.experiment is not None:
            due_s = min(due_s, self.experiment.due_s)
        if self._unfunded.total:
            due_s = min(due_s, self._unfunded.due_s)
        if self.governor.held:
            due_s = min(due_s, max(now_s, self.governor.due_s), self.governor.next_expiry_s())
        return self.alarm.ask(due_s, now_s)
