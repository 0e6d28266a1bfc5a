"""Governor: which requests run now, which are held, and which are refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from mileage.control.config import ControlConfig
from mileage.control.decisions import Decision, Decisions
from mileage.control.fair_queue import FairQueue, least_urgent, next_held
from mileage.control.flight import Flight
from mileage.control.governor_state import GovernorState
from mileage.control.intake import Intake
from mileage.control.pool import Pool
from mileage.control.replica import Replica
from mileage.control.replicas import Takers
from mileage.core.actions import Reject, RejectReason, SetLimit

__all__ = ["MARGIN", "Governor"]

MARGIN = 1.0
"""Mean errors of a forecast that are added to it."""
_RETRY_MIN_S = 0.1


class Governor:
    """Holds what cannot run yet, and decides the limits of the replicas."""

    __slots__ = (
        "_config",
        "_pools",
        "_slo",
        "decisions",
        "due_s",
        "held",
        "held_total",
        "refused_total",
        "replicas",
        "share_ratio",
        "would_hold_total",
        "would_merge_total",
        "would_refuse_total",
    )

    def __init__(self, config: ControlConfig, replicas: Iterable[Replica]) -> None:
        self._config = config.governor
        self._slo = config.slo
        self.replicas = replicas
        self._pools: dict[str, Pool] = {}
        self.held = 0
        self.decisions = Decisions()
        self.due_s = -math.inf
        """When limits are to be decided, and what is held is to be looked at, again."""
        self.share_ratio = 1.0
        self.held_total = 0
        self.refused_total: dict[RejectReason, int] = {}
        self.would_hold_total = 0
        self.would_refuse_total = 0
        self.would_merge_total = 0
        """What it would have done, in the mode `observe`."""

    def reconfigure(self, config: ControlConfig) -> None:
        """Decide by this from now on; what is held stays held."""
        self._config, self._slo = config.governor, config.slo
        weights = {name: tenant.weight for name, tenant in config.tenants.items()}
        for pool in self._pools.values():
            pool.share.reweigh(weights)
        self.due_s = -math.inf

    def share(self, ratio: float) -> None:
        """So much of every limit is ours from now on: this is one of several workers."""
        self.share_ratio = ratio
        for replica in self.replicas:
            replica.throttle.share(ratio)

    def pool(self, takers: Takers) -> Pool:
        """The pool of the replicas that can serve a request."""
        models = (takers.serving or takers.loadable)[0].models
        base = models[0] if models else ""
        pool = self._pools.get(base)
        if pool is None:
            pool = self._pools[base] = Pool()
        takers.pool = pool
        return pool

    def alone_s(self, model: str, prompt_tokens: float) -> float:
        """Seconds to the first token of such a prompt on an idle replica; 0 while not known."""
        for replica in self.replicas:
            if model in replica.serves and replica.models:
                pool = self._pools.get(replica.models[0])
                return pool.speed.alone_s(prompt_tokens) if pool is not None else 0.0
        return 0.0

    # --- one request --------------------------------------------------------------------------

    def place(
        self, flight: Flight, replica: Replica, intake: Intake, now_s: float
    ) -> Replica | Reject | None:
        """Where the request goes now; None: it is held. `replica` is the router's choice."""
        takers, pool, config = flight.takers, flight.pool, self._config
        target_s = flight.ttft_target_s
        judged = target_s is not None and config.reject_late
        if not (self.held and self._rivals(takers)):
            late_s = -math.inf
            for each in (replica, *takers.closed.loads):
                if each.throttle.has_room(flight.prompt_tokens):
                    late_s = self._late_s(flight, each, now_s) if judged else 0.0
                    if late_s <= 0.0:
                        return each
            if late_s > 0.0:
                return self._refusal(flight, late_s, now_s)
        request = flight.request
        terms = intake.terms(request)
        flight.flow = pool.share.flow(request.tenant, terms.priority, terms.weight)
        wait_s = self._wait_s(pool, takers, flight)
        if judged:
            first_s = wait_s + MARGIN * pool.forecast.residual_s
            first_s += replica.throttle.service_s(flight, now_s)
            late_s = now_s + first_s - flight.deadline_s
            if late_s > 0.0:
                return self._refusal(flight, late_s, now_s)
        if self.held >= config.queue_max:
            return self.full(flight)
        self._hold(pool, flight, wait_s)
        return None

    def _refusal(self, flight: Flight, late_s: float, now_s: float) -> Reject:
        """Of a request that has just come, and would be late by so much."""
        first_s = flight.deadline_s + late_s - now_s
        detail = (
            f"its first token would come in {first_s:.2f} s; "
            f"the target is {flight.ttft_target_s:.3g} s"
        )
        # No forecast becomes better before the next request has ended.
        retry_s = self._retry_s(late_s + _pace(flight.pool, flight.takers)[1])
        return Reject(flight.request.id, "deadline", retry_s, detail)

    def full(self, flight: Flight) -> Reject:
        """The refusal of a request that there is no place for in the queue."""
        detail = f"{self.held} requests are waiting already (governor.queue_max)"
        wait_s = self._wait_s(flight.pool, flight.takers, flight)
        return Reject(flight.request.id, "queue_full", self._retry_s(wait_s), detail)

    def _retry_s(self, wait_s: float) -> float:
        """When to come again. By `queue_wait_max_s` all that waits now is served or given up, so
        that no forecast of what waits is true beyond it, however slow the engine seems."""
        return max(_RETRY_MIN_S, min(wait_s, self._config.queue_wait_max_s))

    def least_urgent(self, flight: Flight) -> Flight | None:
        """Which of those that are held is to be refused in place of this one; None: none is."""
        queues = (queue for pool in self._pools.values() for queue in pool.queues.values())
        return least_urgent(queues, flight)

    def _rivals(self, takers: Takers) -> bool:
        """Others are held that one of the same replicas could serve."""
        mine = takers.closed.loads
        for pool in self._pools.values():
            for held in pool.queues:
                if held is takers or not set(mine).isdisjoint(held.closed.loads):
                    return True
        return False

    def _queues(self, replica: Replica) -> list[FairQueue]:
        """What is held that the replica could serve: of any pool, since replicas may list the
        models that they share in another order, or only some of them."""
        return [
            queue
            for pool in self._pools.values()
            for takers, queue in pool.queues.items()
            if replica in takers.closed.loads
        ]

    def _hold(self, pool: Pool, flight: Flight, wait_s: float) -> None:
        queue = pool.queues.get(flight.takers)
        if queue is None:
            queue = pool.queues[flight.takers] = FairQueue(flight.takers, pool.share)
        flight.forecast_s = wait_s
        queue.push(flight)
        self.held += 1
        self.held_total += 1

    def observe(self, flight: Flight, replica: Replica, now_s: float) -> None:
        """Count what would become of the request that is sent to the replica all the same.

        What is in flight there above the limit stands for the queue that would be.
        """
        throttle = replica.throttle
        excess = throttle.in_flight + 1 - throttle.own_limit
        if excess <= 0:
            return
        wait_s = excess * replica.work / throttle.in_flight / replica.work_per_s
        late_s = now_s + wait_s + replica.throttle.service_s(flight, now_s) - flight.deadline_s
        if flight.ttft_target_s is not None and self._config.reject_late and late_s > 0.0:
            self.would_refuse_total += 1
        else:
            self.would_hold_total += 1

    def would(self, refusal: Reject | None, *, held: bool) -> bool:
        """Count what its tenant's limits would do to a request that is let in all the same."""
        self.would_refuse_total += refusal is not None
        self.would_hold_total += refusal is None and held
        return refusal is not None or held

    def refused(self, refusal: Reject, tenant: str, now_s: float) -> None:
        """Count a refusal."""
        totals = self.refused_total
        totals[refusal.reason] = totals.get(refusal.reason, 0) + 1
        self.decisions.refused(tenant, refusal.reason, refusal.detail, now_s)

    def release(self, flight: Flight, now_s: float) -> None:
        """The request is held no longer."""
        queue = flight.queue
        assert queue is not None
        queue.remove(flight)
        self.held -= 1
        if not queue.count:
            pool = flight.pool
            pool.queues.pop(queue.takers, None)

    def _wait_s(self, pool: Pool, takers: Takers, flight: Flight) -> float:
        """Seconds that the request would be held: those before it, and the next one to end."""
        queue = pool.queues.get(takers)
        before = queue.work_before(flight.flow, flight.cost) if queue is not None else 0.0
        rate, turn_s = _pace(pool, takers)
        return pool.forecast.wait_s(before, rate) + turn_s

    # --- what is held -------------------------------------------------------------------------

    def pump(self, replica: Replica, now_s: float) -> Iterator[Flight | Reject]:
        """What is held and can go to the replica, as long as it has room; or is refused by now.

        A request is to be sent before the next one is asked for.
        """
        if not self.held or replica.down_reason is not None or replica.breaker.state != "closed":
            return
        throttle = replica.throttle
        while self.held and throttle.in_flight < throttle.own_limit:
            slack_work = self._config.fair_slack_s * replica.work_per_s
            flight = next_held(self._queues(replica), slack_work)
            if flight is None:
                return
            late_s = self._late_s(flight, replica, now_s)
            if late_s > 0.0:
                yield self.late(flight, now_s, late_s)
            elif throttle.has_room(flight.prompt_tokens):
                self.release(flight, now_s)
                pool = flight.pool
                if flight.forecast_s is not None:
                    pool.forecast.waited(flight.forecast_s, now_s - flight.request.arrived_s)
                pool.share.charge(flight.flow, flight.cost)
                flight.charged = True
                yield flight
            else:
                return

    def _late_s(self, flight: Flight, replica: Replica, now_s: float) -> float:
        """By how much the request would be late if it were sent now; not late: 0 or less.

        An idle replica takes any request that is not late yet: were all refused because of what
        was once learned, nothing would ever be learned anew.
        """
        late_s = now_s - flight.expires_s
        if late_s > 0.0 or flight.ttft_target_s is None or not self._config.reject_late:
            return late_s
        return late_s + (
            replica.throttle.service_s(flight, now_s) if replica.throttle.in_flight else 0.0
        )

    def late(self, flight: Flight, now_s: float, late_s: float = 0.0) -> Reject:
        """The refusal of a request that has waited too long."""
        waited_s = now_s - flight.request.arrived_s
        detail = f"it has waited {waited_s:.2f} s and cannot be served in time any more"
        retry_s = self._retry_s(late_s + _pace(flight.pool, flight.takers)[1])
        return Reject(flight.request.id, "deadline", retry_s, detail)

    def expired(self, now_s: float) -> Iterator[Flight]:
        """The requests that have been held too long, or that nothing can serve any more.

        Each is to be released before the next one is asked for.
        """
        for pool in list(self._pools.values()):
            for takers, queue in list(pool.queues.items()):
                if not (takers.closed.loads or takers.half_open):
                    yield from list(queue)
                    continue
                for head in queue.heads():
                    flow = head.flow
                    flight: Flight | None = head
                    while flight is not None and flight.expires_s <= now_s:
                        yield flight
                        flight = queue.head(flow)

    def next_expiry_s(self) -> float:
        """When the first of the requests that are held has been held too long."""
        first_s = math.inf
        for pool in self._pools.values():
            for queue in pool.queues.values():
                for head in queue.heads():
                    first_s = min(first_s, head.expires_s)
        return first_s

    def probes(self) -> Iterator[Flight]:
        """Requests that are held while a replica on probation could take one."""
        for pool in list(self._pools.values()):
            for takers, queue in list(pool.queues.items()):
                if takers.half_open:
                    flight = next_held((queue,), 0.0)
                    if flight is not None:
                        yield flight

    # --- limits -------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterator[SetLimit]:
        """Decide the limits of all replicas that are due."""
        config = self._config
        self.due_s = now_s + config.period_s
        for pool in self._pools.values():
            pool.forecast.relax()
        for replica in self.replicas:
            throttle = replica.throttle
            if now_s < throttle.due_s or not replica.models or throttle.idle:
                continue
            changed = throttle.decide(
                now_s,
                waiting=self._waiting(replica),
                slo=self._slo.of(replica.models[0]),
                bounds=(config.limit_min, config.limit_max),
                share_ratio=self.share_ratio,
                period_s=config.period_s,
            )
            throttle.keep_calm(self._slo.strictest_ttft_s(replica.serves))
            fitted = throttle.prefill_cost.value
            if fitted is not None:
                its = self._pools.get(replica.models[0])
                if its is not None:
                    its.fitted(fitted)
            if changed:
                self.decisions.add(
                    Decision(
                        at_s=now_s,
                        kind="failed" if throttle.failed else "limit",
                        subject=replica.name,
                        reason=throttle.reason,
                        limit=throttle.limit,
                    )
                )
                yield SetLimit(replica.name, throttle.limit, throttle.reason)

    def state(self) -> GovernorState:
        """What is held and what was decided, for people."""
        held: dict[str, int] = {}
        for pool in self._pools.values():
            for queue in pool.queues.values():
                for flight in queue:
                    tenant = flight.request.tenant
                    held[tenant] = held.get(tenant, 0) + 1
        return GovernorState(
            mode=self._config.mode,
            policy=self._config.policy,
            held=self.held,
            held_by_tenant=held,
            held_total=self.held_total,
            refused_total=dict(self.refused_total),
            would_hold_total=self.would_hold_total,
            would_refuse_total=self.would_refuse_total,
            would_merge_total=self.would_merge_total,
            waiting={r.name: self._waiting(r) for r in self.replicas if r.models},
            decisions=self.decisions.latest(),
        )

    def _waiting(self, replica: Replica) -> int:
        if not self.held:
            return 0
        return sum(
            math.ceil(queue.count / len(queue.takers.closed.loads))
            for queue in self._queues(replica)
        )

    def corrected(self, flight: Flight, cost: float) -> None:
        """A request that its flow was charged for has left its replica: so much work in all."""
        flight.pool.share.correct(flight.flow, cost - flight.cost)
        flight.charged = False


def _pace(pool: Pool, takers: Takers) -> tuple[float, float]:
    """Work that the replicas do per second when they are full, and the seconds between two requests
    that end: until the first one of those that are held can be sent.

    While nothing is known of one of them it is taken to do any work at once: nobody is refused for
    a guess.
    """
    rate = cost = 0.0
    in_flight = 0
    for replica in takers.closed.loads:
        throttle = replica.throttle
        speed = throttle.speed.value
        rate += math.inf if speed is None else speed * throttle.own_limit
        cost += throttle.cost
        in_flight += throttle.in_flight
    return rate, pool.forecast.wait_s(cost / in_flight, rate) if in_flight else 0.0
